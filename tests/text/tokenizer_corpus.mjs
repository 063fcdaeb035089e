// A deterministic corpus for comparing tokenizers: a list of Buffers, some of them ill-formed UTF-8.
//
// Left out on purpose: U+0085 and U+FEFF, which JavaScript's \s places differently from the Unicode property White_Space that
// the models' own tokenizers use, and characters younger than Unicode 14, whose categories depend on the library's age.

function randomSource(seed) {
  let state = BigInt(seed);
  return (n) => {  // 0 .. n-1
    state = (state * 6364136223846793005n + 1442695040888963407n) & 0xffffffffffffffffn;
    return Number((state >> 33n) % BigInt(n));
  };
}

const YOUNGER_THAN_14 = [  // up to Unicode 17, below U+30000
  [0x88f, 0x88f], [0x897, 0x897], [0xc5c, 0xc5c], [0xcdc, 0xcdc], [0xcf3, 0xcf3], [0xece, 0xece], [0x1acf, 0x1add],
  [0x1ae0, 0x1aeb], [0x1b4e, 0x1b4f], [0x1b7f, 0x1b7f], [0x1c89, 0x1c8a], [0x20c1, 0x20c1], [0x2427, 0x2429],
  [0x2b96, 0x2b96], [0x2ffc, 0x2fff], [0x31e4, 0x31e5], [0x31ef, 0x31ef], [0xa7cb, 0xa7cf], [0xa7d2, 0xa7d2],
  [0xa7d4, 0xa7d4], [0xa7da, 0xa7dc], [0xa7f1, 0xa7f1], [0xfbc3, 0xfbd2], [0xfd90, 0xfd91], [0xfdc8, 0xfdce],
  [0x105c0, 0x105f3], [0x10940, 0x10959], [0x10d40, 0x10d65], [0x10d69, 0x10d85], [0x10d8e, 0x10d8f],
  [0x10ec2, 0x10ec7], [0x10ed0, 0x10ed8], [0x10efa, 0x10eff], [0x1123f, 0x11241], [0x11380, 0x11389],
  [0x1138b, 0x1138b], [0x1138e, 0x1138e], [0x11390, 0x113b5], [0x113b7, 0x113c0], [0x113c2, 0x113c2],
  [0x113c5, 0x113c5], [0x113c7, 0x113ca], [0x113cc, 0x113d5], [0x113d7, 0x113d8], [0x113e1, 0x113e2],
  [0x116d0, 0x116e3], [0x11b00, 0x11b09], [0x11b60, 0x11b67], [0x11bc0, 0x11be1], [0x11bf0, 0x11bf9],
  [0x11db0, 0x11ddb], [0x11de0, 0x11de9], [0x11f00, 0x11f10], [0x11f12, 0x11f3a], [0x11f3e, 0x11f5a],
  [0x1342f, 0x1342f], [0x13439, 0x13455], [0x13460, 0x143fa], [0x16100, 0x16139], [0x16d40, 0x16d79],
  [0x16ea0, 0x16eb8], [0x16ebb, 0x16ed3], [0x16ff2, 0x16ff6], [0x187f8, 0x187ff], [0x18cff, 0x18cff],
  [0x18d09, 0x18d1e], [0x18d80, 0x18df2], [0x1b132, 0x1b132], [0x1b155, 0x1b155], [0x1cc00, 0x1ccfc],
  [0x1cd00, 0x1ceb3], [0x1ceba, 0x1ced0], [0x1cee0, 0x1cef0], [0x1d2c0, 0x1d2d3], [0x1df25, 0x1df2a],
  [0x1e030, 0x1e06d], [0x1e08f, 0x1e08f], [0x1e4d0, 0x1e4f9], [0x1e5d0, 0x1e5fa], [0x1e5ff, 0x1e5ff],
  [0x1e6c0, 0x1e6de], [0x1e6e0, 0x1e6f5], [0x1e6fe, 0x1e6ff], [0x1f6d8, 0x1f6d8], [0x1f6dc, 0x1f6dc],
  [0x1f774, 0x1f77f], [0x1f7d9, 0x1f7d9], [0x1f8b2, 0x1f8bb], [0x1f8c0, 0x1f8c1], [0x1f8d0, 0x1f8d8],
  [0x1fa54, 0x1fa57], [0x1fa75, 0x1fa77], [0x1fa87, 0x1fa8a], [0x1fa8e, 0x1fa8f], [0x1faad, 0x1faaf],
  [0x1fabb, 0x1fabf], [0x1fac6, 0x1fac6], [0x1fac8, 0x1fac8], [0x1facd, 0x1facf], [0x1fada, 0x1fadc],
  [0x1fadf, 0x1fadf], [0x1fae8, 0x1faea], [0x1faef, 0x1faef], [0x1faf7, 0x1faf8], [0x1fbcb, 0x1fbef],
  [0x1fbfa, 0x1fbfa], [0x2b739, 0x2b73f], [0x2cea2, 0x2cead], [0x2ebf0, 0x2ee5d],
];

const comparable = (c) => c !== 0x85 && c !== 0xfeff && !YOUNGER_THAN_14.some(([a, b]) => c >= a && c <= b);
const usable = (c) => comparable(c) && !/[\p{Cn}\p{Cs}]/u.test(String.fromCodePoint(c));

const SCRIPTS = {
  latin: [0x41, 0x7a], latin1: [0xc0, 0xff], extended: [0x100, 0x24f], ipa: [0x250, 0x2af], modifiers: [0x2b0, 0x2ff],
  marks: [0x300, 0x36f], greek: [0x370, 0x3ff], cyrillic: [0x400, 0x4ff], armenian: [0x531, 0x58a], hebrew: [0x591, 0x5f4],
  arabic: [0x600, 0x6ff], syriac: [0x700, 0x74f], thaana: [0x780, 0x7b1], nko: [0x7c0, 0x7ff], devanagari: [0x900, 0x97f],
  bengali: [0x980, 0x9fe], gurmukhi: [0xa01, 0xa76], gujarati: [0xa81, 0xaff], oriya: [0xb01, 0xb77], tamil: [0xb82, 0xbfa],
  telugu: [0xc00, 0xc7f], kannada: [0xc80, 0xcf2], malayalam: [0xd00, 0xd7f], sinhala: [0xd81, 0xdf4], thai: [0xe01, 0xe5b],
  lao: [0xe81, 0xedf], tibetan: [0xf00, 0xfda], myanmar: [0x1000, 0x109f], georgian: [0x10a0, 0x10ff], jamo: [0x1100, 0x11ff],
  ethiopic: [0x1200, 0x137c], cherokee: [0x13a0, 0x13fd], canadian: [0x1400, 0x167f], khmer: [0x1780, 0x17f9],
  mongolian: [0x1800, 0x18aa], vietnamese: [0x1ea0, 0x1ef9], greekExtended: [0x1f00, 0x1ffe], punctuation: [0x2010, 0x205e],
  superscripts: [0x2070, 0x209c], currency: [0x20a0, 0x20c0], letterlike: [0x2100, 0x214f], numberForms: [0x2150, 0x218b],
  arrows: [0x2190, 0x21ff], maths: [0x2200, 0x22ff], enclosed: [0x2460, 0x24ff], boxes: [0x2500, 0x259f], dingbats: [0x2700, 0x27bf],
  kangxi: [0x2f00, 0x2fd5], cjkPunctuation: [0x3000, 0x303f], hiragana: [0x3041, 0x309f], katakana: [0x30a0, 0x30ff],
  bopomofo: [0x3105, 0x312f], extensionA: [0x3400, 0x4dbf], han: [0x4e00, 0x9ffc], yi: [0xa000, 0xa48c], hangul: [0xac00, 0xd7a3],
  compatibility: [0xf900, 0xfad9], presentation: [0xfb00, 0xfb4f], arabicForms: [0xfb50, 0xfdfc], halfwidth: [0xff01, 0xffee],
  linearB: [0x10000, 0x100fa], gothic: [0x10330, 0x1034a], cuneiform: [0x12000, 0x12399], hieroglyphs: [0x13000, 0x1342e],
  mathLetters: [0x1d400, 0x1d7ff], adlam: [0x1e900, 0x1e959], emoji: [0x1f300, 0x1f64f], extensionB: [0x20000, 0x2a6df],
  private: [0xe000, 0xe0ff], tags: [0xe0020, 0xe007f],
};

const SENTENCES = [
  'The kettle is on the stove, and nobody remembers who put it there.', "Don't you think we've seen enough? I'm sure they'll say it's ours.",
  "IT'S NOT WHAT WE'D HOPED FOR; YOU'RE LATE, AND I'LL TELL THEM.", 'Naïve café façade coöperation, señor: ¿qué pasó? ¡Nada!',
  'Der Fluß fließt über große Steine; Äpfel und Öl stehen im Schränkchen.', "L'été dernier, j'ai vu une hirondelle près de l'œuvre d'Hélène.",
  'Az őszi erdőben hűvös szél fúj, és tűnődve nézünk utána.', 'Zażółć gęślą jaźń, a potem idź do domu.', 'Příliš žluťoučký kůň úpěl ďábelské ódy.',
  'Вчера мы ходили на рынок и купили яблок на 1 250 рублей.', 'Το νερό κυλάει αργά κάτω από τη γέφυρα.', 'הילדים משחקים בחצר עד הערב.',
  'القطار يصل في الساعة ٧:٣٠ صباحًا.', 'बारिश के बाद बगीचे में मोर नाच रहा था।', 'বৃষ্টির পরে মাঠে শিশুরা খেলছে।', 'மழை பெய்தால் ஆறு நிறையும்.',
  'ฝนตกหนักเมื่อคืนนี้ แต่เช้านี้ท้องฟ้าแจ่มใส', '昨天下了一場大雨，今天的天空特別藍。', '明日は九時に駅で会いましょう。カメラも持ってきてね！',
  '내일 아침에 바다를 보러 가자고 했어요.', 'Đường về quê đi qua hai cây cầu và một ngôi chùa.', 'İstanbul\'da sabah ışığı çok güzeldir; ağaçlar yeşil.',
  'გზა მთაზე გადის.', 'Ճանապարհը երկար է։', 'ለምን ዘግይተህ መጣህ?', 'Hǫggva skal í hlíð; þat er ráð at fornu fari.',
];

const CODE = [
  'int main(int argc, char** argv) {\n\treturn argc > 1 ? 0 : -1;\n}\n', 'def f(x):\n    """Doc."""\n    return [i**2 for i in range(x) if i % 3 != 0]\n',
  'const a = {...b, [`k${i}`]: x?.y ?? null}; // TODO: fix\r\n', 'SELECT a.id, COUNT(*) FROM t1 AS a WHERE a.x >= 3.14e-5 GROUP BY 1;\n',
  '<div class="row" id=\'x1\'>&nbsp;&amp;<br/></div>\n\n\n', '#!/bin/sh\nset -eu\nfor f in *.txt; do echo "$f"; done\n',
  '{"a": [1, 2.5, -3e10, true, null], "b": "\\u00e9\\n"}', 'fn main() -> Result<(), Box<dyn Error>> { println!("{:?}", 1..=5); Ok(()) }',
  '\\begin{align}\n  x_{i+1} &= x_i - \\frac{f(x_i)}{f\'(x_i)} \\\\\n\\end{align}', 'camelCaseName snake_case_name SCREAMING_CASE kebab-case-name HTTPServer2Go',
  'https://example.org/a/b?c=d&e=%20f#g user@example.org /usr/lib/x86_64/lib.so.1', '| a | b |\n|---|---|\n| 1 | 2 |\n', '        if (x) {\n            y();\n        }\n',
  '0x1F 0b1010 1_000_000 1e-9 .5 5. 3.14f 100% $99.99 €5', 'a+=b; c<<=2; d!==e; f=>g; h::i; j->k; l&&m||n; o??p', "r'\\d+' \"it's\" `x` '''y''' \"\"\"z\"\"\"",
];

const EMOJI = [
  '😀', '👍🏽', '👩‍👩‍👧‍👦', '🏳️‍🌈', '🇩🇪🇫🇷🇯🇵', '1️⃣#️⃣*️⃣', '❤️‍🔥', '🧑🏿‍🚀', '👁️‍🗨️', '☺️', '☹', '🏴󠁧󠁢󠁥󠁮󠁧󠁿', '🤷‍♀️', '🫶🏻', '🐻‍❄️', '⌛️', '🀄', '🧑‍🤝‍🧑',
];

const CONTRACTIONS = ["'s", "'S", "'t", "'T", "'re", "'Re", "'RE", "'ve", "'VE", "'m", "'M", "'ll", "'LL", "'lL", "'d", "'D", '’s', '’T', "'x", "''", "' s", "'"];

const BLANKS = [' ', '  ', '   ', '\t', '\n', '\r', '\r\n', '\n\n', '\v', '\f', '\u00a0', '\u1680', '\u2003', '\u2009', '\u2028', '\u2029', '\u202f',
  '\u205f', '\u3000', '\u200b', '\u200d', '\u2060', '\u180e', '\u001c', '\u001f', '\u2581'];

const NORMALISATION = ['e\u0301', 'E\u0301\u0323', 'a\u0323\u0302', '\u1100\u1161\u11a8', '\uac00\u11a8', '\u212b', '\u2126', '\ufb01', '\u0958', '\u0344',
  '\u0f73', '\u1e9b\u0323', 'q\u0307\u0323', '\u0fb2\u0f80', '\u2adc', '\u304b\u3099', '\u30cf\u309a', '\uf900', '\ufa10', '\u{1d15e}', '\u{11099}\u{110ba}', '\u0041\u030a'];

/// `tokens`: names of special and added tokens to mix in.
export function corpus(tokens) {
  const below = randomSource(20240229);
  const pick = (list) => list[below(list.length)];
  const out = [];
  const add = (text) => out.push(Buffer.from(text, 'utf8'));
  const pools = Object.values(SCRIPTS).map(([from, to]) => {
    const pool = [];
    for (let c = from; c <= to; ++c) if (usable(c)) pool.push(String.fromCodePoint(c));
    return pool;
  });
  const word = (pool = pick(pools)) => Array.from({length: 1 + below(8)}, () => pick(pool)).join('');
  const number = () => pick([
    () => String(below(10)), () => String(below(1e9)), () => `${below(1e6)}.${below(1e6)}`, () => `-${below(100)}e${below(30)}`,
    () => `${below(24)}:${below(60)}:${below(60)}`, () => `${1 + below(12)}/${below(31)}/${1900 + below(150)}`, () => '٠١٢٣٤٥٦٧٨٩'.slice(below(5)),
    () => '०१२३४५६७८९'.slice(below(7)), () => '½⅓²³①Ⅷ'.slice(below(4)), () => '𝟘𝟙𝟚𝟛０１２'.slice(2 * below(3)), () => '9'.repeat(1 + below(20)),
  ])();
  const atoms = [
    () => word(), () => word(), () => pick(SENTENCES).slice(0, 5 + below(40)), () => pick(CODE).slice(0, 5 + below(30)), () => pick(EMOJI),
    number, () => pick(BLANKS), () => pick(BLANKS), () => ' ', () => ' ', () => pick(CONTRACTIONS), () => pick(NORMALISATION),
    () => '!?.,;:-_/\\|@#$%^&*()[]{}<>~`"+='.charAt(below(32)).repeat(1 + below(4)), () => word(pools[0]), () => ` ${word(pools[0])}`,
  ];
  // slice() of a JavaScript string may cut a surrogate pair.
  const whole = (text) => text.toWellFormed();

  ['', ' ', '  ', '\n', '\0', '\0\0a\0', 'a', '\u{10ffff}', '\ufffd', '▁', '▁▁a', ' a', 'a '].forEach(add);
  SENTENCES.forEach(add);
  CODE.forEach(add);
  EMOJI.forEach(add);
  NORMALISATION.forEach(add);
  SENTENCES.forEach((s) => add(s.normalize('NFD')));
  SENTENCES.forEach((s) => add(s.toUpperCase()));
  for (const pool of pools) {
    for (let i = 0; i < 8; ++i) add(Array.from({length: 1 + below(6)}, () => word(pool)).join(pick([' ', ' ', '', ', ', '\n', '-'])));
  }
  for (let n = 1; n <= 40; ++n) for (const b of [' ', '\n', '\t', '\r\n']) add(`${b.repeat(n)}${n % 3 ? 'x' : ''}`);
  for (let i = 0; i < 200; ++i) add(Array.from({length: 1 + below(12)}, () => pick(BLANKS)).join('') + pick(['', 'x', 'é', '1', '.', '字']));
  for (const c of CONTRACTIONS) for (const w of ['I', 'they', 'CAN', 'été', '3', '', ' ', '字']) add(`${w}${c}${pick(['', ' x', 'x', '1'])}`);
  for (let i = 0; i < 200; ++i) add(Array.from({length: 1 + below(4)}, number).join(pick([' ', '', ',', '.', '\n'])));
  for (let i = 0; i < 60; ++i) add(Array.from({length: 1 + below(6)}, () => pick(EMOJI)).join(pick(['', ' ', 'a'])));
  for (let i = 0; i < 150; ++i) {
    add(Array.from({length: 1 + below(10)}, () => {
      let c = below(0x30000);
      while (!usable(c)) c = below(0x30000);
      return String.fromCodePoint(c);
    }).join(''));
  }
  for (const n of [100, 1000, 5000]) for (const s of ['a', ' ', 'ab', '字', '.', '\n', '0', 'é', '😀', '\u0301', 'A ']) add(s.repeat(n));
  for (let i = 0; i < 250; ++i) {  // tokens in text
    add(whole(Array.from({length: 1 + below(5)}, () => pick([() => pick(tokens), () => pick(tokens), () => pick(tokens).slice(0, -1), ...atoms])()).join('')));
  }
  for (let i = 0; i < 600; ++i) add(whole(Array.from({length: 1 + below(25)}, () => pick(atoms)()).join('')));
  for (let i = 0; i < 250; ++i) {  // ill-formed
    const bytes = Buffer.from(whole(Array.from({length: 1 + below(6)}, () => pick(atoms)()).join('')), 'utf8');
    for (let k = 1 + below(4); k > 0 && bytes.length > 0; --k) bytes[below(bytes.length)] = below(256);
    const cut = below(2) ? bytes.subarray(0, bytes.length - below(3)) : bytes;
    const read = new TextDecoder('utf-8', {ignoreBOM: true}).decode(cut);
    if (Array.from(read).every((c) => comparable(c.codePointAt(0)))) out.push(cut);
  }
  return out;
}
