"""Words too frequent to tell one text from another, by Snowball language.

English is the list of 179 words that the measurements in ``docs/retrieval.md`` were made with (apostrophes split, so
``don't`` is ``don`` and ``t``). The others hold the function words of their language; a language that is missing here
is stemmed only, and its frequent words weigh little because of their document frequency.
"""

from __future__ import annotations

STOP_WORDS: dict[str, str] = {
    "english": """
        i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she her hers herself
        it its itself they them their theirs themselves what which who whom this that these those am is are was were be
        been being have has had having do does did doing a an the and but if or because as until while of at by for
        with about against between into through during before after above below to from up down in out on off over
        under again further then once here there when where why how all any both each few more most other some such no
        nor not only own same so than too very s t can will just don should now d ll m o re ve y ain aren couldn didn
        doesn hadn hasn haven isn ma mightn mustn needn shan shouldn wasn weren won wouldn
    """,
    "german": """
        aber alle allem allen aller alles als also am an ander andere anderem anderen anderer anderes auch auf aus bei
        bin bis bist da damit dann das dass dasselbe dazu dein deine deinem deinen deiner dem den denn der derer des
        dessen dich die dies diese diesem diesen dieser dieses dir doch dort du durch ein eine einem einen einer eines
        einige einmal er es etwas euch euer eure für gegen gewesen hab habe haben hat hatte hatten hier hin hinter ich
        ihm ihn ihnen ihr ihre ihrem ihren ihrer im in ins ist ja jede jedem jeden jeder jedes jene kann kein keine
        keinem keinen keiner können könnte machen man manche mein meine meinem meinen meiner mich mir mit muss musste
        nach nicht nichts noch nun nur ob oder ohne sehr sein seine seinem seinen seiner selbst sich sie sind so solche
        soll sollte sondern sonst über um und uns unser unsere unter viel vom von vor war waren warst was weg weil
        weiter welche welchem welchen welcher welches wenn werde werden wer wie wieder will wir wird wirst wo wollen
        wollte während würde würden zu zum zur zwar zwischen
    """,
    "french": """
        à ai aie aient ait alors as au aura aurait aussi autre aux avaient avais avait avec avez avions avoir avons c ce
        cela ces cet cette ceux chaque ci comme comment d dans de des donc dont du elle elles en entre es est et étaient
        étais était étant été être eu eux fait il ils j je l la le les leur leurs lui m ma mais me même mes moi mon n ne
        ni nos notre nous on ont ou où par pas pour pourquoi qu quand que quel quelle quelles quels qui s sa sans se ser
        sera serait ses si son sont sous soyez suis sur t ta te tes toi ton tous tout toute toutes très tu un une vos
        votre vous y
    """,
    "spanish": """
        a al algo algunas algunos ante antes como con contra cual cuando de del desde donde durante e el él ella ellas
        ellos en entre era eran eras es esa esas ese eso esos esta está están estaba estado estamos estar estas este
        esto estos estoy fue fueron fui ha había han has hasta hay he la las le les lo los más me mi mí mis mucho muchos
        muy nada ni no nos nosotros nuestra nuestro o os otra otras otro otros para pero poco por porque que qué quien
        quién quienes se sea ser si sí sido sin sobre son soy su sus también tan tanto te tener tengo ti tiene tienen
        todo todos tu tú tus un una uno unos vosotros y ya yo
    """,
    "italian": """
        a ad agli ai al alla alle allo anche avere aveva avevano avuto c che chi ci coi col come con contro cui d da
        dagli dai dal dalla dalle dallo degli dei del della delle dello di dov dove e è ed era erano essere fa fra gli
        ha hai hanno ho i il in io l la le lei li lo loro lui ma me mi mia mie miei mio ne negli nei nel nella nelle
        nello noi non nostra nostro o per perché più quale quanta quanto quella quelle quelli quello questa queste
        questi questo se sei si sia siamo siete sono sta stata stato su sua sue sugli sui sul sulla sulle sullo suo suoi
        te ti tra tu tua tue tuo tuoi tutti tutto un una uno vi voi vostra vostro
    """,
    "portuguese": """
        a à ao aos aquela aquelas aquele aqueles aquilo as às até com como da das de dela delas dele deles depois do dos
        e é ela elas ele eles em entre era eram essa essas esse esses esta está estão estas estava este estes eu foi
        foram há isso isto já lhe lhes mais mas me mesmo meu meus minha minhas muito na não nas nem no nos nós nossa
        nosso num numa o os ou para pela pelas pelo pelos por qual quando que quem são se sem ser será seu seus só sua
        suas também te tem têm tenho ter teu teus tu tua tuas um uma você vocês
    """,
    "dutch": """
        aan al alles als altijd andere ben bij daar dan dat de der deze die dit doch doen door dus een eens en er ge
        geen geweest haar had heb hebben heeft hem het hier hij hoe hun iemand iets ik in is ja je kan kon kunnen maar
        me meer men met mij mijn moet na naar niet niets nog nu of om omdat onder ons ook op over reeds te tegen toch
        toen tot u uit uw van veel voor want waren was wat werd wezen wie wil worden wordt zal ze zelf zich zij zijn zo
        zonder zou
    """,
    "swedish": """
        alla allt att av blev bli blir de dem den denna deras dess det detta dig din dina ditt du där då efter ej eller
        en er era ett från för ha hade han hans har henne hennes hon honom hur här i icke ingen inom inte jag ju kan
        kunde man med mellan men mig min mina mitt mot mycket ni nu när någon något några och om oss på samma sedan sig
        sin sina sitt själv skulle som så sådan till under upp ut utan vad var vara varför varit vart vem vi vid vilken
        vår våra vårt än är åt över
    """,
    "danish": """
        ad af alle alt anden at blev blive bliver da de dem den denne der deres det dette dig din dine disse dog du
        efter eller en end er et for fra ham han hans har havde have hende hendes her hos hun hvad hvis hvor i ikke ind
        jeg jer jo kunne man mange med meget men mig min mine mit mod når ned noget nogle nu og også om op os over på
        selv sig sin sine sit skal skulle som sådan thi til ud under var vi vil ville vor være været
    """,
    "norwegian": """
        alle at av bare begge ble blei bli blir både da de deg dei deim deira den denne der dere deres det dette di din
        disse dit du eg eit eller en enn er et etter for fordi fra før ha hadde han hans har henne hennes her hun hva
        hvem hvis hvor hvorfor i ikke ingen inn ja jeg kan kom kun kunne man mange med meg men mer min mitt mot mye ned
        noe noen nå når og også om opp oss over på samme seg selv si sin sine sitt skal skulle som så til ut uten var
        ved vi vil ville vår være vært å
    """,
    "russian": """
        и в во не что он на я с со как а то все она так его но да ты к у же вы за бы по только ее мне было вот от меня
        еще нет о из ему теперь когда даже ну вдруг ли если уже или ни быть был него до вас нибудь опять уж вам ведь там
        потом себя ничего ей может они тут где есть надо ней для мы тебя их чем была сам чтоб без будто чего раз тоже
        себе под будет ж тогда кто этот того потому этого какой совсем ним здесь этом один почти мой тем чтобы нее были
        куда зачем всех никогда можно при наконец два об другой хоть после над больше тот через эти нас про всего них
        какая много разве три эту моя впрочем хорошо свою этой перед иногда лучше чуть том нельзя такой им более всегда
        конечно всю между
    """,
}
