-- Wishbone B4, classic cycles, eight bits: the address is the register number.
library ieee;
use ieee.std_logic_1164.all;

entity oi_wishbone is
  port (
$ports
  );
end entity;

architecture rtl of oi_wishbone is
begin
  bus_valid <= wb_cyc and wb_stb and not rst;
  bus_write <= wb_we;
  bus_addr <= wb_adr;
  bus_wdata <= wb_dat_w;
  wb_dat_r <= bus_rdata;
  wb_ack <= bus_ready and wb_cyc and wb_stb;
end architecture;
