"""Files that a project for a microcontroller adds: startup code and a linker script, which run programs in an emulator.

The board is Arm's MPS2 with the AN386 image, a Cortex-M4, as QEMU emulates it; output goes through semihosting. A
program for another board only needs other memories in the linker script.
"""

BOARD = "mps2-an386"


def startup() -> str:
    """The text of ``bare/startup.c``: the vector table, and the code from reset to ``main``."""
    return """/* Made by OpenInfer: startup code for a Cortex-M with newlib and semihosting. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern unsigned char stack_top[], data_begin[], data_end[], data_source[], bss_begin[], bss_end[];
extern void initialise_monitor_handles(void);
extern int main(int argc, char **argv);

void reset(void);

void reset(void)
{
    /* The FPU is off after reset: enable coprocessors 10 and 11 (CPACR). */
    *(volatile uint32_t *)0xe000ed88u |= 0xfu << 20;
    __asm__ volatile("dsb\\n\\tisb" ::: "memory");
    memcpy(data_begin, data_source, (size_t)(data_end - data_begin));
    memset(bss_begin, 0, (size_t)(bss_end - bss_begin));
    initialise_monitor_handles();
    const int status = main(0, NULL);
    fflush(NULL);
    _Exit(status);
}

/* A fault ends the program: only a bug can cause one. */
static void fault(void)
{
    _Exit(3);
}

__attribute__((section(".vectors"), used)) static void (*const vectors[16])(void) = {
    (void (*)(void))stack_top, reset, fault, fault, fault, fault, fault, 0, 0, 0, 0, fault, fault, 0, fault, fault,
};
"""


def linker_script() -> str:
    """The text of ``bare/mps2.ld``."""
    return """/* Made by OpenInfer: the memory map of the MPS2 board. Change it to that of your device. */
MEMORY
{
    CODE (rx) : ORIGIN = 0x00000000, LENGTH = 4M
    RAM (rwx) : ORIGIN = 0x20000000, LENGTH = 4M
}
ENTRY(reset)
SECTIONS
{
    .text : { KEEP(*(.vectors)) *(.text*) *(.rodata*) . = ALIGN(8); } > CODE
    .ARM.exidx : { *(.ARM.exidx*) } > CODE
    .data : { data_begin = .; *(.data*) . = ALIGN(8); data_end = .; } > RAM AT > CODE
    data_source = LOADADDR(.data);
    .bss (NOLOAD) : { bss_begin = .; *(.bss*) *(COMMON) . = ALIGN(8); bss_end = .; } > RAM
    end = .; /* the start of newlib's heap, which only printf uses */
    stack_top = ORIGIN(RAM) + LENGTH(RAM);
}
"""


EMULATED = f"qemu-system-arm -M {BOARD} -nographic -monitor none -serial none -semihosting".split()
"""The command that runs a program on the board; ``-kernel`` names the program."""
EMULATOR = f"""# Runs programs on an emulated board with semihosting: needs newlib and qemu-system-arm.
RUN ?= {" ".join(EMULATED)} -kernel
"""
"""How the Makefile runs programs."""
SECTIONS = "-ffunction-sections -fdata-sections"
"""Compiler flags that let the linker drop what a program does not use."""
DROPPED = "-Wl,--gc-sections"
"""The linker flag that drops it."""
LINKED = f"{DROPPED} --specs=rdimon.specs -nostartfiles -T bare/mps2.ld bare/startup.c"
"""How the Makefile links programs."""
