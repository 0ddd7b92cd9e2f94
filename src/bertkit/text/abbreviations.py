"""Words that decide whether a full stop ends a sentence: English abbreviations, and words that begin sentences.

Abbreviations in small letters and without their stop.
"""


def _words(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


# Always followed by more of the same sentence: titles before names, and words that introduce something.
NEVER_LAST = _words(
    """
    mr mrs ms messrs mme mlle mgr msgr dr drs prof rev revd hon fr gen maj col lt capt cpt sgt cpl pvt cmdr comdr
    adm brig gov sen rep pres supt insp det amb atty vs viz e.g i.e eg ie cf
    """
)
# Followed by a number when they are abbreviations, and words of their own when not: "No. 5", but "He said no. Then ..."
BEFORE_NUMBERS = _words(
    """
    no nos nr vol vols fig figs sec sect ch chap art eq eqs op pt pts pg pp ref refs tab ver ca circa approx app
    jan feb mar apr jun jul aug sep sept oct nov dec
    """
)
# At the end of a sentence or before a name: the next word decides.
SELDOM_LAST = _words(
    """
    jr sr inc ltd co corp bros cos llc plc dept univ assn assoc ave blvd rd st ste mt ft pl sq hwy etc al esq est ed eds
    edn trans comp repr cit ibid sp spp subsp var lat lit gr incl excl misc min max govt natl intl mfg tel ext b.c
    """
)
# With a capital after an abbreviation, these begin a sentence; names hardly ever are one of them.
STARTERS = _words(
    """
    The He She It They We You This That These Those There Here His Her Its Their Our My Your In On At By For From With
    As After Before During While When Where Although Though However But And Or If Since Until Unless Because Despite
    Some Many Most Several Both Each Another All Not What Who Why How Which Such Then Thus Therefore Also Later Today
    Now Once Under According To An Following Among Between Through Over Instead Moreover Furthermore Nevertheless
    Meanwhile Eventually Finally Recently Initially Originally Currently It's He's She's They're There's That's
    """
)
