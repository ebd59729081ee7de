  process
    type words_t is array (natural range <>) of std_logic_vector(31 downto 0);
    type memory_t is access words_t;
    file image : text open read_mode is "weights/${name}.hex";
    variable memory : memory_t;
    variable row : line;
    variable count, place : natural := 0;
  begin
    while not endfile(image) loop
      readline(image, row);
      count := count + 1;
    end loop;
    memory := new words_t(0 to count);
    file_close(image);
    file_open(image, "weights/${name}.hex", read_mode);
    for i in 0 to count - 1 loop
      readline(image, row);
      hread(row, memory(i));
    end loop;
    memory(count) := (others => '0');
    loop
      wait until rising_edge(clk) and mem_valid = '1' and mem_ready = '0';
      for i in 2 to memory_clocks loop
        wait until rising_edge(clk);
      end loop;
      place := to_integer(unsigned(mem_addr(31 downto 2)));
      mem_rdata <= memory(minimum(place, count));
      mem_ready <= '1';
      wait until rising_edge(clk);
      mem_ready <= '0';
    end loop;
  end process;
