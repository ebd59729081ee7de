-- Drives the register bus by commands from standard input, one per line:
--   w RR HEX   writes bytes to a register        r RR N   reads N bytes, and prints them
--   g          waits until the step ends, or stops for traces
library ieee;
use ieee.std_logic_1164.all;
use ieee.numeric_std.all;
use std.textio.all;

entity ${entity}_tb is
  generic (traces : boolean := false; memory_clocks : positive := 3);
end entity;

architecture sim of ${entity}_tb is
  signal clk : std_logic := '0';
  signal rst : std_logic := '1';
  signal is_over : boolean := false;
  signal busy : std_logic;
-- signals
${signals}-- end of signals
${memory_signals}begin
  clk <= not clk after 5 ns when not is_over else '0';

${circuit}
${memory_process}  process
    variable told, said : line;
    variable word : character;
    variable reg, byte : std_logic_vector(7 downto 0);
    variable count : natural;
    variable is_good : boolean;

    procedure clear(found : in std_logic_vector(7 downto 0)) is
    begin
      -- Bits that were never written read as zero: mostly those next to a packed element.
      for i in byte'range loop
        byte(i) := '1' when found(i) = '1' else '0';
      end loop;
    end procedure;

    procedure transfer(constant is_write : in std_logic) is
-- transfer
${transfer}-- end of transfer
    end procedure;
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
          hread(told, reg);
          loop
            hread(told, byte, is_good);
            exit when not is_good;
            transfer('1');
          end loop;
        when 'r' =>
          hread(told, reg);
          read(told, count);
          for i in 1 to count loop
            transfer('0');
            hwrite(said, byte);
          end loop;
          writeline(output, said);
          flush(output);
        when 'g' =>
          for i in 0 to 3 loop
            wait until rising_edge(clk);
          end loop;
          while busy = '1' loop
            wait until rising_edge(clk);
          end loop;
        when others => null;
      end case;
    end loop;
    is_over <= true;
    wait;
  end process;
end architecture;
