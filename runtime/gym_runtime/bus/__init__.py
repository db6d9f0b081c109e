"""The way between workers. `gym_runtime.bus.contract` says what every bus promises."""
