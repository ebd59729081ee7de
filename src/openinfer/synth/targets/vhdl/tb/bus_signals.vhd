  signal bus_valid, bus_write : std_logic := '0';
  signal bus_addr : std_logic_vector(3 downto 0) := "0000";
  signal bus_wdata, bus_rdata : std_logic_vector(7 downto 0) := x"00";
  signal bus_ready : std_logic;
