"""Recorded model calls: one call as it is kept, files of them, and transcripts made from them."""

from gym_runtime.recordings.calls_file import CallsFile as CallsFile
from gym_runtime.recordings.canonical import digests as digests
from gym_runtime.recordings.canonical import fold as fold
from gym_runtime.recordings.entry import make_entry as make_entry
from gym_runtime.recordings.recording import Recording as Recording
from gym_runtime.recordings.recording import indices as indices
from gym_runtime.recordings.recording import opening as opening
from gym_runtime.recordings.recording import read as read
from gym_runtime.recordings.transcript import Transcript as Transcript
from gym_runtime.recordings.transcript import off_loop as off_loop
