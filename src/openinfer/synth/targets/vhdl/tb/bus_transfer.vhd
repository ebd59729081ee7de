    begin
      bus_valid <= '1';
      bus_write <= is_write;
      bus_addr <= reg(3 downto 0);
      bus_wdata <= byte;
      loop
        wait until rising_edge(clk);
        exit when bus_ready = '1';
      end loop;
      bus_valid <= '0';
      clear(bus_rdata);
