"""VHDL for FPGAs: kernels as entities, a sequencer for the program, memories and a narrow register bus."""
