-- Functions for generated code: width conversions, shifts, selection. Independent of the model.
library ieee;
use ieee.std_logic_1164.all;
use ieee.numeric_std.all;

package oi is
  -- Converts an integer to another width or signedness: extended by its own signedness, or truncated.
  function oi_s(x : signed; n : positive) return signed;
  function oi_s(x : unsigned; n : positive) return signed;
  function oi_s(x : boolean; n : positive) return signed;
  function oi_u(x : signed; n : positive) return unsigned;
  function oi_u(x : unsigned; n : positive) return unsigned;
  function oi_u(x : boolean; n : positive) return unsigned;
  function oi_bit(x : boolean) return std_logic;

  -- Selects one of two values.
  function oi_sel(c : boolean; a, b : signed) return signed;
  function oi_sel(c : boolean; a, b : unsigned) return unsigned;
  function oi_sel(c : boolean; a, b : boolean) return boolean;
  function oi_min(a, b : signed) return signed;
  function oi_min(a, b : unsigned) return unsigned;
  function oi_max(a, b : signed) return signed;
  function oi_max(a, b : unsigned) return unsigned;

  -- Shifts by any amount: at the width or beyond, the result is all zeros, or all sign bits.
  function oi_shl(x : signed; n : unsigned) return signed;
  function oi_shl(x : unsigned; n : unsigned) return unsigned;
  function oi_shr(x : signed; n : unsigned) return signed;
  function oi_shr(x : unsigned; n : unsigned) return unsigned;

  -- A product as an adder tree, for circuits that have no multipliers left.
  function oi_product(a, b : signed) return signed;
  function oi_product(a, b : unsigned) return unsigned;

  -- Bit by bit, since some tools do not compare constants.
  function oi_is_positive(x : signed) return boolean;
  function oi_is_positive(x : unsigned) return boolean;
  function oi_neg(x : unsigned) return unsigned;
  function oi_popcount(x : unsigned) return unsigned;
  -- The magnitude, unsigned in the same width, which also holds that of the least number.
  function oi_abs(x : signed) return unsigned;
  function oi_abs(x : unsigned) return unsigned;
  -- A magnitude with a sign, one bit wider.
  function oi_with_sign(x : unsigned; is_negative : boolean) return signed;

  -- Packed elements: the first is in the lowest bits of the byte.
  function oi_field(x : std_logic_vector; place : unsigned; bits : positive) return std_logic_vector;
  function oi_put(x : std_logic_vector; place : unsigned; field : std_logic_vector) return std_logic_vector;
end package;

package body oi is
  function oi_s(x : signed; n : positive) return signed is
    constant own : signed(x'length - 1 downto 0) := x;
  begin
    if n > x'length then
      return resize(own, n);
    end if;
    return own(minimum(n, x'length) - 1 downto 0);
  end function;

  function oi_s(x : unsigned; n : positive) return signed is
  begin
    return signed(oi_u(x, n));
  end function;

  function oi_s(x : boolean; n : positive) return signed is
  begin
    return signed(oi_u(x, n));
  end function;

  function oi_u(x : signed; n : positive) return unsigned is
  begin
    return unsigned(oi_s(x, n));
  end function;

  function oi_u(x : unsigned; n : positive) return unsigned is
    constant own : unsigned(x'length - 1 downto 0) := x;
  begin
    if n > x'length then
      return resize(own, n);
    end if;
    return own(minimum(n, x'length) - 1 downto 0);
  end function;

  function oi_u(x : boolean; n : positive) return unsigned is
  begin
    if x then
      return to_unsigned(1, n);
    end if;
    return to_unsigned(0, n);
  end function;

  function oi_bit(x : boolean) return std_logic is
  begin
    if x then
      return '1';
    end if;
    return '0';
  end function;

  function oi_sel(c : boolean; a, b : signed) return signed is
  begin
    if c then
      return a;
    end if;
    return b;
  end function;

  function oi_sel(c : boolean; a, b : unsigned) return unsigned is
  begin
    if c then
      return a;
    end if;
    return b;
  end function;

  function oi_sel(c : boolean; a, b : boolean) return boolean is
  begin
    return (c and a) or (not c and b);
  end function;

  function oi_min(a, b : signed) return signed is
  begin
    return oi_sel(a < b, a, b);
  end function;

  function oi_min(a, b : unsigned) return unsigned is
  begin
    return oi_sel(a < b, a, b);
  end function;

  function oi_max(a, b : signed) return signed is
  begin
    return oi_sel(a < b, b, a);
  end function;

  function oi_max(a, b : unsigned) return unsigned is
  begin
    return oi_sel(a < b, b, a);
  end function;

  function oi_shl(x : signed; n : unsigned) return signed is
  begin
    return signed(oi_shl(unsigned(x), n));
  end function;

  function oi_shl(x : unsigned; n : unsigned) return unsigned is
    variable amount : unsigned(n'length - 1 downto 0) := n;
    variable made : unsigned(x'length - 1 downto 0) := x;
  begin
    for i in 0 to amount'left loop
      if amount(i) = '1' then
        if i > 6 then
          made := (others => '0');
        else
          made := shift_left(made, 2 ** minimum(i, 6));
        end if;
      end if;
    end loop;
    return made;
  end function;

  function oi_shr(x : signed; n : unsigned) return signed is
    variable amount : unsigned(n'length - 1 downto 0) := n;
    variable made : signed(x'length - 1 downto 0) := x;
  begin
    for i in 0 to amount'left loop
      if amount(i) = '1' then
        made := shift_right(made, 2 ** minimum(i, 6));
      end if;
    end loop;
    return made;
  end function;

  function oi_shr(x : unsigned; n : unsigned) return unsigned is
    variable amount : unsigned(n'length - 1 downto 0) := n;
    variable made : unsigned(x'length - 1 downto 0) := x;
  begin
    for i in 0 to amount'left loop
      if amount(i) = '1' then
        made := shift_right(made, 2 ** minimum(i, 6));
      end if;
    end loop;
    return made;
  end function;

  function oi_product(a, b : signed) return signed is
    constant bits : positive := a'length + b'length;
    constant by : signed(b'length - 1 downto 0) := b;
    type terms_t is array (0 to b'length - 1) of signed(bits - 1 downto 0);
    variable terms : terms_t;
  begin
    for i in 0 to b'length - 1 loop
      terms(i) := (others => '0');
      if by(i) = '1' then
        terms(i) := shift_left(resize(a, bits), i);
        if i = b'length - 1 then
          terms(i) := -terms(i);
        end if;
      end if;
    end loop;
    for level in 0 to 6 loop
      for i in 0 to b'length - 1 loop
        if i mod 2 ** (level + 1) = 0 and i + 2 ** level < b'length then
          terms(i) := terms(i) + terms(i + 2 ** level);
        end if;
      end loop;
    end loop;
    return terms(0);
  end function;

  function oi_product(a, b : unsigned) return unsigned is
    constant made : signed(a'length + b'length + 1 downto 0) := oi_product(signed('0' & a), signed('0' & b));
  begin
    return unsigned(made(a'length + b'length - 1 downto 0));
  end function;

  function oi_is_positive(x : signed) return boolean is
  begin
    return x(x'left) = '0' and oi_is_positive(unsigned(x));
  end function;

  function oi_is_positive(x : unsigned) return boolean is
    variable found : boolean := false;
  begin
    for i in x'range loop
      if x(i) = '1' then
        found := true;
      end if;
    end loop;
    return found;
  end function;

  function oi_neg(x : unsigned) return unsigned is
  begin
    return unsigned(-signed(x));
  end function;

  function oi_popcount(x : unsigned) return unsigned is
    variable count : unsigned(6 downto 0) := (others => '0');
  begin
    for i in x'range loop
      if x(i) = '1' then
        count := count + 1;
      end if;
    end loop;
    return count;
  end function;

  function oi_abs(x : signed) return unsigned is
  begin
    if x(x'left) = '1' then
      return unsigned(-x);
    end if;
    return unsigned(x);
  end function;

  function oi_abs(x : unsigned) return unsigned is
  begin
    return x;
  end function;

  function oi_with_sign(x : unsigned; is_negative : boolean) return signed is
    variable made : signed(x'length downto 0) := signed('0' & x);
  begin
    if is_negative then
      return -made;
    end if;
    return made;
  end function;

  function oi_field(x : std_logic_vector; place : unsigned; bits : positive) return std_logic_vector is
    variable own : unsigned(x'length - 1 downto 0) := unsigned(x);
  begin
    for i in 0 to place'length - 1 loop
      if place(place'low + i) = '1' then
        own := shift_right(own, bits * 2 ** i);
      end if;
    end loop;
    return std_logic_vector(own(bits - 1 downto 0));
  end function;

  function oi_put(x : std_logic_vector; place : unsigned; field : std_logic_vector) return std_logic_vector is
    variable own : std_logic_vector(x'length - 1 downto 0) := x;
  begin
    for i in 0 to x'length / field'length - 1 loop
      if place = i then
        own((i + 1) * field'length - 1 downto i * field'length) := field;
      end if;
    end loop;
    return own;
  end function;
end package body;
