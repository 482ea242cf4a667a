// Pieces as people read them: bytes put back into letters, and words for pieces that are no text.

/** The characters by which byte-level tokenizers (GPT-2, BART, RoBERTa) write the bytes 0 to 255. */
function byteCharacters() {
  const own = (byte) => (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
  const found = new Map();
  let next = 256;
  for (let byte = 0; byte < 256; byte++) found.set(String.fromCharCode(own(byte) ? byte : next++), byte);
  return found;
}
const BYTES = byteCharacters();

/** "ĠcafÃ©" → "Ġcafé": a piece that is UTF-8 in such characters; any other piece as it is. */
function inLetters(piece) {
  const [mark, rest] = /^(Ġ*)(.*)$/su.exec(piece).slice(1);
  if (/^[\x20-\x7e]*$/.test(rest) || ![...rest].every((one) => BYTES.has(one))) return piece;
  try {
    return mark + new TextDecoder("utf-8", { fatal: true }).decode(Uint8Array.from(rest, (one) => BYTES.get(one)));
  } catch {
    return piece; // a part of a letter, or a tokenizer that writes letters
  }
}

/** A piece without its tokenizer's mark for a space or for the later pieces of a word. */
export function readable(piece) {
  const letters = inLetters(piece).replace(/^(▁+|Ġ+|##)(?=.)/u, "");
  return letters.trim() ? letters : piece;
}

const SPECIAL = {
  "</s>": "end of the text", "<s>": "beginning of the text", "<pad>": "filler", "<unk>": "a piece that the model does not know",
  "[CLS]": "stands for the whole text", "[SEP]": "end of a text", "[UNK]": "a piece that the model does not know", "[PAD]": "filler",
  "▁": "a space", "Ġ": "a space",
};
const CODE = /^(__[a-z]{2,3}__|[a-z]{3}_[A-Z][a-z]{3}|[a-z]{2}_[A-Z]{2})$/;

/** What a piece means that is no text; undefined for text. */
export const specialInWords = (piece) => (Object.hasOwn(SPECIAL, piece) ? SPECIAL[piece] : CODE.test(piece) ? "code of a language" : undefined);
