from .nats import connect as connect
