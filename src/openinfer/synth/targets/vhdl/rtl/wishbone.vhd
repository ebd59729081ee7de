-- Wishbone B4, classic cycles, eight bits: the address is the register number.
library ieee;
use ieee.std_logic_1164.all;

entity oi_wishbone is
  port (
    clk : in std_logic;
    rst : in std_logic;
    wb_cyc : in std_logic;
    wb_stb : in std_logic;
    wb_we : in std_logic;
    wb_adr : in std_logic_vector(3 downto 0);
    wb_dat_w : in std_logic_vector(7 downto 0);
    wb_dat_r : out std_logic_vector(7 downto 0);
    wb_ack : out std_logic;
    bus_valid : out std_logic;
    bus_write : out std_logic;
    bus_addr : out std_logic_vector(3 downto 0);
    bus_wdata : out std_logic_vector(7 downto 0);
    bus_rdata : in std_logic_vector(7 downto 0);
    bus_ready : in std_logic
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
