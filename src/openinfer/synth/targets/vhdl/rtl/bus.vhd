-- The register bus: eight bits of data, valid and ready. The master holds its request until ready is 1 for one clock.
--
--   0  read: bit 0 a step is running, bit 1 the last step failed, bit 2 the step waits at a trace stop;
--      write 1: start a step; 3: start a step that stops for traces (circuits with the generic traces); 4: continue
--   1  write: the memory address, four bytes, lowest first
--   2  read, write: the byte of memory at the address, which then increments; ignored while a step runs, unless the
--      step waits at a stop
--   3  read: the number of the failure, low byte; 4: high byte
--   5  read: the clocks of the last step, lowest byte; 6, 7, 8: the other bytes
--   9  read: the number of the stop, low byte; 10: high byte
--  11  write: selects a number of the stop, two bytes, low byte first: the dynamic sizes, the addresses of the values
--      that nodes have written, the loop indices
--  12  read: the next byte of the selected number, eight in all, lowest first
--  15  read: 0x4F
library ieee;
use ieee.std_logic_1164.all;
use ieee.numeric_std.all;
use work.oi.all;

entity oi_bus is
  generic (address_bits, word_bits : positive);
  port (
    clk : in std_logic;
    rst : in std_logic;
    bus_valid : in std_logic;
    bus_write : in std_logic;
    bus_addr : in std_logic_vector(3 downto 0);
    bus_wdata : in std_logic_vector(7 downto 0);
    bus_rdata : out std_logic_vector(7 downto 0);
    bus_ready : out std_logic;
    start : out std_logic;
    busy : in std_logic;
    failed : in std_logic;
    failure : in unsigned(15 downto 0);
    tracing : out std_logic;
    trace_resume : out std_logic;
    trace_select : out unsigned(15 downto 0);
    stopped : in std_logic;
    trace_stop : in unsigned(15 downto 0);
    trace_number : in signed(63 downto 0);
    ram_addr : out unsigned(address_bits - 1 downto 0);
    ram_waddr : out unsigned(address_bits - 1 downto 0);
    ram_write : out std_logic;
    ram_size : out std_logic_vector(1 downto 0);
    ram_wdata : out std_logic_vector(word_bits - 1 downto 0);
    ram_q : in std_logic_vector(word_bits - 1 downto 0)
  );
end entity;

architecture rtl of oi_bus is
  signal state : natural range 0 to 3 := 0;
  signal ready : std_logic := '0';
  signal address : unsigned(31 downto 0) := (others => '0');
  signal cycles : unsigned(31 downto 0) := (others => '0');
  signal starting : std_logic := '0';
  signal is_traced, resuming : std_logic := '0';
  signal chosen : unsigned(15 downto 0) := (others => '0');
  signal place : unsigned(2 downto 0) := (others => '0');
begin
  bus_ready <= ready;
  start <= starting;
  tracing <= is_traced;
  trace_resume <= resuming;
  trace_select <= chosen;
  ram_size <= "00";

  process (clk)
    variable register_number : natural range 0 to 15;
    variable data : std_logic_vector(word_bits - 1 downto 0);
  begin
    if rising_edge(clk) then
      ready <= '0';
      starting <= '0';
      resuming <= '0';
      ram_write <= '0';
      ram_addr <= (others => '0');
      ram_waddr <= (others => '0');
      ram_wdata <= (others => '0');
      if starting = '1' then
        cycles <= (others => '0');
      elsif busy = '1' then
        cycles <= cycles + 1;
      end if;
      case state is
        when 0 =>
          if bus_valid = '1' and ready = '0' then
            ready <= '1';
            bus_rdata <= (others => '0');
            -- No others branch before the last number: some tools drop it.
            register_number := to_integer(unsigned(bus_addr));
            case register_number is
              when 0 =>
                if bus_write = '1' then
                  starting <= bus_wdata(0) and not busy;
                  resuming <= bus_wdata(2) and busy;
                  if bus_wdata(0) = '1' then
                    is_traced <= bus_wdata(1);
                  end if;
                else
                  bus_rdata <= "00000" & stopped & failed & (busy or starting);
                end if;
              when 1 =>
                if bus_write = '1' then
                  address <= unsigned(bus_wdata) & address(31 downto 8);
                end if;
              when 2 =>
                data := (others => '0');
                data(7 downto 0) := bus_wdata;
                if busy = '0' or stopped = '1' then
                  address <= address + 1;
                  if bus_write = '1' then
                    ram_waddr <= oi_u(address, address_bits);
                    ram_write <= '1';
                    ram_wdata <= data;
                  else
                    ram_addr <= oi_u(address, address_bits);
                    ready <= '0';
                    state <= 1;
                  end if;
                end if;
              when 3 => bus_rdata <= std_logic_vector(failure(7 downto 0));
              when 4 => bus_rdata <= std_logic_vector(failure(15 downto 8));
              when 5 => bus_rdata <= std_logic_vector(cycles(7 downto 0));
              when 6 => bus_rdata <= std_logic_vector(cycles(15 downto 8));
              when 7 => bus_rdata <= std_logic_vector(cycles(23 downto 16));
              when 8 => bus_rdata <= std_logic_vector(cycles(31 downto 24));
              when 9 => bus_rdata <= std_logic_vector(trace_stop(7 downto 0));
              when 10 => bus_rdata <= std_logic_vector(trace_stop(15 downto 8));
              when 11 =>
                if bus_write = '1' then
                  chosen <= unsigned(bus_wdata) & chosen(15 downto 8);
                  place <= "000";
                end if;
              when 12 =>
                bus_rdata <= std_logic_vector(oi_u(shift_right(trace_number, 8 * to_integer(place)), 8));
                if bus_write = '0' then
                  place <= place + 1;
                end if;
              when 15 => bus_rdata <= x"4F";
              when 13 | 14 => null;
            end case;
          end if;
        when 1 => state <= 2;
        when 2 =>
          bus_rdata <= ram_q(7 downto 0);
          ready <= '1';
          state <= 0;
        when 3 => state <= 0;
      end case;
      if rst = '1' then
        state <= 0;
        ready <= '0';
        starting <= '0';
        resuming <= '0';
        is_traced <= '0';
        address <= (others => '0');
      end if;
    end if;
  end process;
end architecture;
