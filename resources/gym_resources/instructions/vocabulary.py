"""Lists of words that instructions and their checkers use. A benchmark's list is copied unchanged."""

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
"""Of titles, firms, dates, places, measures, degrees and names: Punkt's list, learnt from American
newspapers. It lacks ``e.g``, ``i.e`` and ``etc``.
"""

STARTERS = frozenset(
    _words("""
    above according accordingly afterward afterwards ahead allow almost along already although altogether
    always among anybody anyone anything anyway anywhere apparently ask assuming behind being beneath
    besides better between beyond both briefly but certainly compared concerning conclusion consider
    create dark deep despite didn does doesn doing done earlier either else elsewhere enough ensure
    equally especially essentially even eventually everywhere exactly example examples except explanation
    fewer finally following frequently furthermore given hadn hasn he hence her here hers herself him
    himself however i if imagine immediately importantly in include indeed initially inside instead into
    isn it lately lest likewise listen mainly many meantime meanwhile moreover most myself naturally
    neither nevertheless nonetheless nor normally notably note nothing nowhere occasionally okay onto
    otherwise ourselves overall per please plenty possibly presumably previously primarily probably
    provided question rarely recently regarding regardless remember results right sadly same section
    separately seriously silence similarly simply since slowly so some somehow someone sometimes soon
    specifically step still subsequently such suddenly suppose surely surprisingly thank thanks the them
    themselves there therefore these they think this though through throughout thus together tomorrow
    towards truly try typically ultimately under unfortunately unless unlike upon us various via wait
    were when whenever whereas wherever whether which whichever while whole whom within without yes
    yesterday yet your yourself
    """)
)
"""Words that start a sentence when they are written with a capital behind an abbreviation or an ellipsis: the
frequent ones of those that Punkt lists at starts of sentences only. ``She``, ``You``, ``And`` and ``What``
are not among them.
"""

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
"""NLTK's for English, without those that have an apostrophe, which no run of letters equals."""

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

VERBS = frozenset(
    _words("""
    accept access achieve act adapt add address adjust admire adopt advance advise aim allocate allow alter
    analyze answer anticipate appear apply appoint appreciate approach approve argue arrange arrive ask
    assemble assess assign assist assume attach attempt attend avoid bake balance base be become begin
    believe bend bind blend boil boost borrow brew bring browse build burn buy calculate call capture care
    carry cast catch celebrate change check choose chop clarify classify clean clear click climb close
    collaborate collect combine come commit compare compete compile complete comply compose compute
    concentrate conclude conduct configure confirm connect consider construct consult consume contact
    contain continue contribute convert convince cook cool copy correct count cover crack craft create crush
    cultivate customize cut dance debug decide declare decorate decrease dedicate deepen define delete
    delight deliver demonstrate depend depict deploy derive describe design detect determine develop devise
    dig discard discover discuss dispose dissolve dive divide do double download draft drag drain draw dream
    dress drink drive drizzle drop dry earn eat edit educate elevate eliminate embark embody embrace emit
    emphasize employ empower enable encounter encourage end engage enhance enjoy ensure enter establish
    estimate evaluate examine execute exercise exist expand expect experience experiment explain explore
    export express extend extract face facilitate factor fail fall fasten feed feel fetch fight fill filter
    find finish fit fix flip fly focus fold follow forget forgive form format foster fry gain gather
    generate get give go grab grant grate greet grind grow guard guess guide handle hang happen harness have
    hear heat help hide highlight hire hold hope identify ignore illustrate imagine immerse implement import
    improve include incorporate increase indicate indulge inform initialize inject insert inspect inspire
    install integrate interact interpret introduce invest investigate invite involve isolate join journey
    juggle jump keep kick knead know launch lay lead learn leave lend let leverage lie lift limit list
    listen live load locate look lose love maintain make manage marinate mark master match measure meet melt
    mention minimize mix modify monitor mount move multiply navigate need negotiate note notice nurture
    observe obtain offer open operate optimize order organize outline overcome own pack paint participate
    pause pay peel perform pick place plan play plug pour practice praise prefer preheat prepare present
    preserve press pretend prevent print prioritize proceed produce promise promote protect prove provide
    pull purchase push put quit raise rank rate reach read realize recall receive recognize recommend record
    reduce refer reflect refrain refresh regard register relax release rely remain remember remind remove
    rename repeat replace reply report represent request require research reserve reset resolve respect
    respond rest restart resume retrieve retry return reveal reverse review revise ride rinse rise roast
    roll run saute save say schedule search season secure seek select sell send separate serve set share
    shift show shuffle simmer simplify sing sit sketch skip sleep slice smile solve speak specify spend
    spice split spread stand start state stay step stick stir stop store strengthen strive structure study
    submit subscribe substitute subtract succeed suggest summarize support suppose surround swim switch
    tackle take talk target taste teach tell tend test thank think throw tie toss train transfer transform
    translate travel treat trust try tuck turn type uncover understand undo unleash unlock unveil update
    upgrade upload use utilize validate value verify view visit visualize wait wake walk wander want wash
    watch wear weave weigh welcome whip whisk win wish witness wonder work worry wrap write yield zoom
    """)
)
"""Verbs with which texts start, in their base form."""

VERB_FORMS = frozenset(
    _words("""
    am is are was were been being has had having does did done began begun broke broken brought built bought
    came caught chose chosen cut drew drawn drank drunk drove driven ate eaten fell fallen fed felt fought
    found flew flown forgot forgotten got gotten gave given went gone grew grown hung heard hid hidden held
    kept knew known laid led left lent lost made met paid put read rode ridden rose risen ran said saw seen
    sought sold sent set shook sang sung sat slept spoke spoken spent stood stuck swam swum took taken
    taught told thought threw thrown understood woke wore worn won wrote written
    """)
)
"""Forms of irregular verbs."""

COMMON_WORDS = frozenset(
    _words("""
    across actually ago alone also another apart around aside away back basically chapter children
    clearly could down due during every everyone end far few first five former four full further
    generally good great half hey high how introduction last later least less life little long made maybe
    may might more mostly must near never new next now obviously often old one others out outside part
    past people perhaps plus quickly quite rather really red second see seven several should six small
    something somewhere start steps students summary sure ten third three time today too toward twice two
    usually water well whatever whose work world would
    """)
).union(STARTERS - {"i"}, STOP_WORDS - {"i"}, PRONOUNS - {"i"}, VERBS, VERB_FORMS)
"""Words that are not names: written with a capital behind an initial, they start a sentence."""
