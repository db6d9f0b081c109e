"""NeMo Gym's HTTP face: programs that know its servers use a running system without a change.

One process at one address is head server, agents and resources servers at once. `gym_http_server` has the
routes, and `agent_directory` what clients read first: which agents there are, and where.
`served_environments` tells which environment a request means. `asked_runs` runs the rollouts of ``/run``,
each once however often it is asked for; `seeded_sessions` holds what ``/seed_session`` opens; `answers`
writes rows, verdicts, metrics and errors.
"""

from gym_faces.gym_server.agent_directory import agents_yaml as agents_yaml
from gym_faces.gym_server.gym_http_server import GymServer as GymServer
