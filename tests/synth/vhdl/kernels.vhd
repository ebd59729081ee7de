-- Runs kernels by themselves: commands from the standard input.
--   w AAAAAAAA HEX   writes bytes to memory     r AAAAAAAA N   reads so many bytes, and prints them
--   s K              runs a kernel, and prints whether it has failed
library ieee;
use ieee.std_logic_1164.all;
use ieee.numeric_std.all;
use std.textio.all;
use work.oi.all;

entity kernels_tb is
end entity;

architecture sim of kernels_tb is
  signal clk : std_logic := '0';
  signal rst : std_logic := '1';
  signal is_over : boolean := false;
  signal ram_q : std_logic_vector(63 downto 0);
  signal ram_addr, ram_waddr, host_ram_addr, host_ram_waddr : unsigned(31 downto 0) := (others => '0');
  signal ram_write, host_ram_write : std_logic := '0';
  signal ram_size : std_logic_vector(1 downto 0);
  signal host_ram_size : std_logic_vector(1 downto 0) := "00";
  signal ram_wdata, host_ram_wdata : std_logic_vector(63 downto 0) := (others => '0');
  signal start, done, failed : std_logic_vector(COUNT - 1 downto 0) := (others => '0');
SIGNALS
begin
  clk <= not clk after 5 ns when not is_over else '0';
WIRES
INSTANCES

  process
    variable told, said : line;
    variable word : character;
    variable byte : std_logic_vector(7 downto 0);
    variable address : std_logic_vector(31 downto 0);
    variable count, clocks : natural;
    variable is_good : boolean;
  begin
    for i in 0 to 3 loop
      wait until rising_edge(clk);
    end loop;
    rst <= '0';
    while not endfile(input) loop
      readline(input, told);
      read(told, word, is_good);
      next when not is_good;
      case word is
        when 'w' =>
          hread(told, address);
          loop
            hread(told, byte, is_good);
            exit when not is_good;
            host_ram_waddr <= unsigned(address);
            host_ram_wdata(7 downto 0) <= byte;
            host_ram_write <= '1';
            wait until rising_edge(clk);
            address := std_logic_vector(unsigned(address) + 1);
          end loop;
          host_ram_write <= '0';
          host_ram_wdata <= (others => '0');
          host_ram_waddr <= (others => '0');
          wait until rising_edge(clk);
        when 'r' =>
          hread(told, address);
          read(told, count);
          for i in 1 to count loop
            host_ram_addr <= unsigned(address);
            wait until rising_edge(clk);
            wait until rising_edge(clk);
            wait until rising_edge(clk);
            hwrite(said, ram_q(7 downto 0));
            address := std_logic_vector(unsigned(address) + 1);
          end loop;
          host_ram_addr <= (others => '0');
          writeline(output, said);
        when 's' =>
          read(told, count);
          start(count) <= '1';
          wait until rising_edge(clk);
          start(count) <= '0';
          clocks := 0;
          loop
            wait until rising_edge(clk);
            clocks := clocks + 1;
            exit when done(count) = '1' or clocks = LIMIT;
          end loop;
          if clocks = LIMIT then
            write(said, 'T');
          else
            write(said, failed(count));
          end if;
          wait until rising_edge(clk);
          writeline(output, said);
        when others => null;
      end case;
    end loop;
    is_over <= true;
    wait;
  end process;
end architecture;
