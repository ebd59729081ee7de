  signal spi_clk, spi_in : std_logic := '0';
  signal spi_select_n : std_logic := '1';
  signal spi_out : std_logic;
