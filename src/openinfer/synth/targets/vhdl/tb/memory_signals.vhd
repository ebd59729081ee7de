  -- External memory with the contents of weights/${name}.hex; it answers after memory_clocks clocks.
  signal mem_valid : std_logic;
  signal mem_addr, mem_rdata : std_logic_vector(31 downto 0) := (others => '0');
  signal mem_ready : std_logic := '0';
