-- SPI, mode 0, most significant bit first. A frame lasts while the chip is selected. Its first byte is the command:
-- bit 7 is set to write, clear to read; bits 3 to 0 are the register. In a write frame, each further byte is written to
-- the register. In a read frame, further bytes come in pairs: a dummy byte, during which the register is read, and then
-- its value. The circuit's clock must be at least eight times that of the bus.
library ieee;
use ieee.std_logic_1164.all;
use ieee.numeric_std.all;

entity oi_spi is
  port (
$ports
  );
end entity;

architecture rtl of oi_spi is
  -- Two synchronizing registers per pin, and a third to detect edges.
  signal clocks, selects : std_logic_vector(2 downto 0) := (others => '1');
  signal inputs : std_logic_vector(1 downto 0) := (others => '0');
  signal shifted, answer, given : std_logic_vector(7 downto 0) := (others => '0');
  signal count : unsigned(2 downto 0) := (others => '0');
  signal has_command, is_write, is_asked, valid : std_logic := '0';
  signal register_number : std_logic_vector(3 downto 0) := (others => '0');
begin
  spi_out <= answer(7);
  bus_valid <= valid;
  bus_write <= is_write;
  bus_addr <= register_number;

  process (clk)
    variable byte : std_logic_vector(7 downto 0);
  begin
    if rising_edge(clk) then
      clocks <= clocks(1 downto 0) & spi_clk;
      selects <= selects(1 downto 0) & spi_select_n;
      inputs <= inputs(0) & spi_in;
      if valid = '1' and bus_ready = '1' then
        valid <= '0';
        given <= bus_rdata;
      end if;
      if selects(1) = '1' then
        count <= (others => '0');
        has_command <= '0';
        answer <= (others => '0');
      elsif clocks(2) = '0' and clocks(1) = '1' then
        byte := shifted(6 downto 0) & inputs(1);
        shifted <= byte;
        count <= count + 1;
        if count = 0 and has_command = '1' and is_write = '0' and is_asked = '0' then
          valid <= '1';
        end if;
        if count = 7 then
          has_command <= '1';
          if has_command = '0' then
            is_write <= byte(7);
            register_number <= byte(3 downto 0);
            is_asked <= '0';
          else
            bus_wdata <= byte;
            valid <= is_write;
            is_asked <= not is_asked;
          end if;
        end if;
      elsif clocks(2) = '1' and clocks(1) = '0' then
        answer <= answer(6 downto 0) & '0';
        if count = 0 then
          answer <= given;
        end if;
      end if;
      if rst = '1' then
        valid <= '0';
        has_command <= '0';
        count <= (others => '0');
      end if;
    end if;
  end process;
end architecture;
