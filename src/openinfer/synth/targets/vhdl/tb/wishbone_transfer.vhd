    begin
      wb_cyc <= '1';
      wb_stb <= '1';
      wb_we <= is_write;
      wb_adr <= reg(3 downto 0);
      wb_dat_w <= byte;
      loop
        wait until rising_edge(clk);
        exit when wb_ack = '1';
      end loop;
      wb_cyc <= '0';
      wb_stb <= '0';
      clear(wb_dat_r);
