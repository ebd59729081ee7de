  signal axi_awaddr, axi_araddr : std_logic_vector(5 downto 0) := "000000";
  signal axi_awvalid, axi_wvalid, axi_bready, axi_arvalid, axi_rready : std_logic := '0';
  signal axi_awready, axi_wready, axi_bvalid, axi_arready, axi_rvalid : std_logic;
  signal axi_wdata, axi_rdata : std_logic_vector(31 downto 0) := x"00000000";
  signal axi_wstrb : std_logic_vector(3 downto 0) := "0001";
  signal axi_bresp, axi_rresp : std_logic_vector(1 downto 0);
