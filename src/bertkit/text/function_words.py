"""The commonest small words of some languages: enough of them tell which language a passage is in."""

FUNCTION_WORDS: dict[str, str] = {
    "English": "the of and to in that is was for it with as his on be at by had not are but from have they you which "
    "were her she there been their would has when who will more if out so said what up its about than into them",
    "German": "der die und in den von zu das mit sich des auf für ist im dem nicht ein eine als auch es an werden aus er "
    "hat dass sie nach wird bei einer um am sind noch wie einem über einen so zum war haben nur oder aber vor zur",
    "French": "de la le et les des en un une du dans est que pour qui sur au plus par avec il ne se pas ce sont cette "
    "aux ou son été nous mais sa ses leur comme elle fait dont être était ont ces même après deux",
    "Spanish": "de la que el en y los del las un por con una su para es al lo como más pero sus le ya este sí porque esta "
    "entre cuando muy sin sobre también hasta hay donde quien desde todo nos durante fue han",
    "Italian": "di e il la che in un per è una sono con non del della si da al dei come le gli nel alla anche più delle "
    "questo ma ha lo dal nella essere suo stato dalla loro sua fu hanno ed era i tra molto",
    "Portuguese": "de que e o a do da em um para é com não uma os no se na por mais as dos como mas foi ao ele das tem à "
    "seu sua ou ser quando muito há nos já está também só pelo pela até isso ela entre era",
    "Dutch": "de het een van en in is dat op te zijn met voor niet aan er om ook als dan maar bij nog door naar uit hij "
    "wordt heeft werd over deze tot zij kan worden hebben was die ze geen meer wel",
    "Swedish": "och i att det som en på är av för med den till har de inte om ett han men var jag från så vi kan när "
    "skulle hade sin eller efter upp detta också hans blev mot hon vid där över år",
    "Danish": "og i at det er en til af på som med for den de der ikke har et han var jeg om vi men så fra eller kan når "
    "havde sig blev også efter hans ved år være skulle mere hun over ud",
    "Finnish": "ja on ei että se hän oli mutta kun ovat myös tai jos joka niin kuin hänen sen jo vain olla mukaan ole sekä "
    "vuonna nyt jälkeen kanssa olivat voi mitä ne tämä vielä kaikki jotka",
    "Polish": "i w na z do się nie że jest o to jak po za od co przez jako dla są był ale jego przy tym także ich oraz może "
    "już być lub które który było tylko tego pod bardzo jej nad przed",
    "Czech": "a v se na je s že z do o i to k jako ve by za pro jeho si po ale které od který byl jsou bylo nebo při až "
    "také ze není jen však jsem jak být před tak mezi své podle",
    "Romanian": "de și în a la cu o pe din că un care nu este mai sau au fost al ale se prin pentru ca sunt după dar "
    "lui fi către între acest această său sa ei era cele",
    "Hungarian": "a az és hogy nem is egy ez volt meg csak van mint már de ki el még azt vagy ha mert pedig kell lehet "
    "ezt olyan után több minden nagy voltak ami lesz",
    "Turkish": "ve bir bu da de için ile olarak çok daha olan gibi kadar en sonra ne ise ama var o ya her değil olduğu "
    "tarafından göre ilk iki ancak yıl büyük şekilde oldu",
    "Indonesian": "yang dan di dengan untuk pada dari ini dalam tidak adalah itu ke oleh sebagai akan juga ia dia atau "
    "telah mereka lebih bisa karena tersebut kami dapat ada seorang menjadi",
    "Russian": "и в не на что с он как это по но из у к за от его так для же все о бы было был она только мы то при или "
    "еще если уже до их чтобы который были когда может ее время есть под",
    "Ukrainian": "і в не на що з у як до та він за це від його по для але був є або також про під якій було які ще їх "
    "коли й роки час бути була цього між має через після",
    "Bulgarian": "и на в се да е за от с по че не са като до при а към през това или той ще една един те както има но "
    "които който след също може между те бъде бил само",
}
