"""The way between workers. `gym_runtime.bus.interface` says what every bus promises."""
