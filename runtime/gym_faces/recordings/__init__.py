"""Recorded model calls: the record of one call, files of records, and transcripts built from them."""

from gym_faces.recordings.calls_file import CallsFile as CallsFile
from gym_faces.recordings.calls_file import make_entry as make_entry
from gym_faces.recordings.canonical import digests as digests
from gym_faces.recordings.canonical import fold as fold
from gym_faces.recordings.past_calls import Found as Found
from gym_faces.recordings.past_calls import PastCall as PastCall
from gym_faces.recordings.past_calls import PastCalls as PastCalls
from gym_faces.recordings.past_calls import tools_digest as tools_digest
from gym_faces.recordings.recording import RecordedRollout as RecordedRollout
from gym_faces.recordings.recording import indices as indices
from gym_faces.recordings.recording import opening as opening
from gym_faces.recordings.recording import read as read
from gym_faces.recordings.transcript import Transcript as Transcript
from gym_faces.recordings.transcript import off_loop as off_loop
