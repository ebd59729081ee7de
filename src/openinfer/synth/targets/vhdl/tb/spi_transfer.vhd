      variable command, found : std_logic_vector(7 downto 0);

      procedure pause is
      begin
        for i in 1 to 4 loop
          wait until rising_edge(clk);
        end loop;
      end procedure;

      procedure exchange(constant given : in std_logic_vector(7 downto 0)) is
      begin
        for i in 7 downto 0 loop
          spi_in <= given(i);
          pause;
          found(i) := spi_out;
          spi_clk <= '1';
          pause;
          spi_clk <= '0';
        end loop;
      end procedure;
    begin
      command := is_write & "000" & reg(3 downto 0);
      spi_select_n <= '0';
      pause;
      exchange(command);
      exchange(byte);
      if is_write = '0' then
        exchange(x"00");
        clear(found);
      end if;
      pause;
      spi_select_n <= '1';
      pause;
