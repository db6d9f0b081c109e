"""Lists of words that instructions and their checkers know. Those of a benchmark are the benchmark's."""

from __future__ import annotations


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


ABBREVIATIONS = frozenset(
    _words("""
    dr mr mrs ms messrs prof sr jr st gen col maj lt adm sen rep reps
    inc corp co cos ltd bros cie s.p.a chg vs v ct
    jan feb aug sep sept oct nov dec tues wed fri a.m p.m a.d yr
    u.s u.k u.n u.s.a u.s.s.r d.c n.y n.j n.h n.c n.d n.m s.c r.i l.a ga fla tenn okla minn ariz ore ill conn
    calif wash wis mich colo kan ky nev ala va w.va vt pa sw
    ft mg ave ok ph.d m.b.a t p n d k m s h w g l c r e f
    a.a a.c a.g a.h a.m.e a.s a.t b.f b.v c.i.t c.v d.h d.w e.f e.h e.l e.m f.g f.j g.d g.f g.k h.c h.f h.m
    i.m.s j.b j.c j.j j.k j.p j.r l.f l.p m.d.c m.j n.v p.a.m r.a r.h r.j r.k r.t s.a s.g s.s t.j w.c w.r w.w
    """)
)
"""Of titles, firms, dates, places, measures, degrees and names: what Punkt has learnt of American newspapers.
It has not met ``e.g``, ``i.e`` and ``etc``."""

STARTERS = frozenset(
    _words("""
    the a an in on at by for with from to of as if it its this that these those there here he she they we i
    you his her their our my your one some many most all each every another both no not so but and or yet now
    then still also when while where what who why how although though because since after before during until
    unless however moreover furthermore meanwhile nevertheless therefore thus instead indeed finally next
    first second third last additionally consequently once let among under over despite like such perhaps
    please use make overall
    """)
)
"""Words that start a sentence when they are written with a capital behind an abbreviation."""

CONJUNCTIONS = frozenset(_words("and but for nor or so yet"))

PRONOUNS = frozenset(
    _words("""
    i me we us you he him she her it they them my mine our ours your yours his hers its their theirs
    myself ourselves yourself yourselves himself herself itself themselves this that these those
    who whom whose which what whoever whomever whatever whichever anybody anyone anything everybody everyone
    everything nobody nothing somebody someone something each either neither both all some any none
    """)
)

STOP_WORDS = frozenset(
    _words("""
    i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she her hers
    herself it its itself they them their theirs themselves what which who whom this that these those am is
    are was were be been being have has had having do does did doing a an the and but if or because as until
    while of at by for with about against between into through during before after above below to from up down
    in out on off over under again further then once here there when where why how all any both each few more
    most other some such no nor not only own same so than too very s t can will just don should now d ll m o
    re ve y ain aren couldn didn doesn hadn hasn haven isn ma mightn mustn needn shan shouldn wasn weren won
    wouldn
    """)
)
"""NLTK's for English, save those with an apostrophe, which no run of letters equals."""

PERSON_NAMES = _words("""
    Emma Liam Sophia Jackson Olivia Noah Ava Lucas Isabella Mason Mia Ethan Charlotte Alexander Amelia
    Benjamin Harper Leo Zoe Daniel Chloe Samuel Lily Matthew Grace Owen Abigail Gabriel Ella Jacob Scarlett
    Nathan Victoria Elijah Layla Nicholas Audrey David Hannah Christopher Penelope Thomas Nora Andrew Aria
    Joseph Claire Ryan Stella Jonathan
""")

NORTHERN_CAPITALS = _words("""
    Reykjavik Helsinki Oslo Tallinn Stockholm Riga Moscow Copenhagen Vilnius Minsk Dublin Berlin Amsterdam
    Warsaw London Brussels Prague Luxembourg Paris Vienna Bratislava Budapest Vaduz Chisinau Bern Ljubljana
    Zagreb
""")
"""Europe's capitals north of 45 degrees, from north to south."""
