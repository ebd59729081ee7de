    begin
      if is_write = '1' then
        axi_awaddr <= reg(3 downto 0) & "00";
        axi_wdata <= x"000000" & byte;
        axi_awvalid <= '1';
        axi_wvalid <= '1';
        loop
          wait until rising_edge(clk);
          exit when axi_awready = '1';
        end loop;
        axi_awvalid <= '0';
        axi_wvalid <= '0';
        axi_bready <= '1';
        loop
          wait until rising_edge(clk);
          exit when axi_bvalid = '1';
        end loop;
        axi_bready <= '0';
        assert axi_bresp = "00" report "a write got an error response" severity failure;
      else
        axi_araddr <= reg(3 downto 0) & "00";
        axi_arvalid <= '1';
        loop
          wait until rising_edge(clk);
          exit when axi_arready = '1';
        end loop;
        axi_arvalid <= '0';
        axi_rready <= '1';
        loop
          wait until rising_edge(clk);
          exit when axi_rvalid = '1';
        end loop;
        axi_rready <= '0';
        assert axi_rresp = "00" report "a read got an error response" severity failure;
        clear(axi_rdata(7 downto 0));
      end if;
