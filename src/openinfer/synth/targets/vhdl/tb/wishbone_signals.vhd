  signal wb_cyc, wb_stb, wb_we : std_logic := '0';
  signal wb_adr : std_logic_vector(3 downto 0) := "0000";
  signal wb_dat_w, wb_dat_r : std_logic_vector(7 downto 0) := x"00";
  signal wb_ack : std_logic;
