-- AXI4-Lite, 32 bits: register N is at the address 4 * N, in the lowest byte. A write whose lowest strobe is 0 changes
-- nothing. One transfer at a time; a pending write comes before a pending read.
library ieee;
use ieee.std_logic_1164.all;

entity oi_axi4lite is
  port (
$ports
  );
end entity;

architecture rtl of oi_axi4lite is
  type state_t is (idle, writing, written, reading, was_read);
  signal state : state_t := idle;
  signal accepts_write, accepts_read, valid : std_logic := '0';
  signal data : std_logic_vector(7 downto 0) := (others => '0');
begin
  axi_awready <= accepts_write;
  axi_wready <= accepts_write;
  axi_arready <= accepts_read;
  axi_bresp <= "00";
  axi_rresp <= "00";
  axi_bvalid <= '1' when state = written else '0';
  axi_rvalid <= '1' when state = was_read else '0';
  axi_rdata <= x"000000" & data;
  bus_valid <= valid;

  process (clk)
  begin
    if rising_edge(clk) then
      accepts_write <= '0';
      accepts_read <= '0';
      case state is
        when idle =>
          if axi_awvalid = '1' and axi_wvalid = '1' then
            accepts_write <= '1';
            bus_write <= '1';
            bus_addr <= axi_awaddr(5 downto 2);
            bus_wdata <= axi_wdata(7 downto 0);
            valid <= axi_wstrb(0);
            state <= writing;
          elsif axi_arvalid = '1' then
            accepts_read <= '1';
            bus_write <= '0';
            bus_addr <= axi_araddr(5 downto 2);
            valid <= '1';
            state <= reading;
          end if;
        when writing =>
          if valid = '0' or bus_ready = '1' then
            valid <= '0';
            state <= written;
          end if;
        when written =>
          if axi_bready = '1' then
            state <= idle;
          end if;
        when reading =>
          if bus_ready = '1' then
            valid <= '0';
            data <= bus_rdata;
            state <= was_read;
          end if;
        when was_read =>
          if axi_rready = '1' then
            state <= idle;
          end if;
      end case;
      if rst = '1' then
        state <= idle;
        valid <= '0';
      end if;
    end if;
  end process;
end architecture;
