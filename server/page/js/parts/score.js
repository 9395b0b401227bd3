// What a hit's score is made of: the server's own arithmetic (core/search: fusion, decay, ranking) read
// backwards from `why`, so that the parts of the bar add up to the number beside it. Pure.

const WEIGHTS = { lexical: 0.4, semantic: 0.6, speaker: 0.2, date: 0.08, linked: 0.1, substance: 0.25 };
const RERANK = 0.7;
const KEPT = 0.8;
const WEIGHTED = { match: 0.6, recency: 0.2, salience: 0.2 };
const RECENCY_DAYS = 30;

/**
 * @param {{score: number, why: object}} hit
 * @param {{rank: string, rate: number, hybrid: boolean}} search `rate`: of forgetting, per day; `hybrid`: whether any
 *   hit of this search has a similarity of meaning.
 * @returns {{parts: Array<{key: string, value: number}>, lost: Array<{key: string, value: number}>, match: number,
 *   moved: number}} `parts` add up to the score; `lost` is what time, importance and telling little took; `moved` is the
 *   factor by which project, trust and contradictions moved the match, 1 where they did not.
 */
export function explainScore(hit, { rank, rate, hybrid }) {
  const { score, why } = hit;
  const recency = why.recency ?? 1;
  const salience = why.salience ?? 1;
  const evidence = evidenceOf(why, hybrid);
  const plain = evidence.reduce((sum, part) => sum + part.value, 0);
  const { match, added, lost } = settle(rank, score, recency, salience, rate);
  const telling = tellingOf(why);
  lost.unshift({ key: 'substance', value: match / telling - match });
  const left = score - added.reduce((sum, part) => sum + part.value, 0);
  const scale = plain > 0 ? Math.max(0, left) / plain : 0;
  const parts = evidence.map(({ key, value }) => ({ key, value: value * scale }));
  const moved = plain > 0 ? match / plain : 1;
  return {
    parts: [...parts, ...added].filter((part) => part.value > 0.0005),
    lost: lost.filter((part) => part.value > 0.0005),
    match,
    moved: Math.abs(moved - 1) < 0.015 ? 1 : moved,
  };
}

function evidenceOf(why, hybrid) {
  const semantic = why.semantic ?? 0.5 * why.lexical;
  const whole = WEIGHTS.lexical + (hybrid ? WEIGHTS.semantic : 0) + WEIGHTS.speaker / 2;
  const added = [
    { key: 'lexical', value: WEIGHTS.lexical * why.lexical },
    { key: 'semantic', value: hybrid ? WEIGHTS.semantic * semantic : 0 },
    { key: 'speaker', value: why.speaker ? WEIGHTS.speaker : 0 },
    { key: 'date', value: WEIGHTS.date * (why.date ?? 0) },
    { key: 'linked', value: WEIGHTS.linked * (why.linked ?? 0) },
  ];
  const sum = added.reduce((all, part) => all + part.value, 0);
  const scale = tellingOf(why) / Math.max(whole, sum);
  const parts = added.map(({ key, value }) => ({ key, value: value * scale }));
  if (why.rerank === undefined) return parts;
  return [
    ...parts.map(({ key, value }) => ({ key, value: value * (1 - RERANK) })),
    { key: 'rerank', value: RERANK * why.rerank },
  ];
}

/** The factor for how much a turn tells. */
const tellingOf = (why) => 1 - WEIGHTS.substance * (1 - (why.substance ?? 1));

/** The match behind a score, what time and importance added to it, and what they took. */
function settle(rank, score, recency, salience, rate) {
  if (rank === 'weighted') {
    const days = rate > 0 ? -Math.log(Math.max(recency, 1e-12)) / rate : 0;
    const fresh = WEIGHTED.recency * Math.exp(-days / RECENCY_DAYS);
    const important = WEIGHTED.salience * salience;
    const added = [{ key: 'recency', value: fresh }, { key: 'salience', value: important }];
    const lost = [{ key: 'recency', value: WEIGHTED.recency - fresh }, { key: 'salience', value: WEIGHTED.salience - important }];
    return { match: unit((score - fresh - important) / WEIGHTED.match), added, lost };
  }
  if (rank === 'decay') {
    const kept = recency * salience;
    const match = unit(kept > 0 ? score / kept : 0);
    return { match, added: [], lost: [{ key: 'salience', value: match * (1 - salience) }, { key: 'recency', value: match * salience * (1 - recency) }] };
  }
  if (rank === 'balanced') {
    const match = unit(score / (KEPT + (1 - KEPT) * recency * salience));
    const gained = (1 - KEPT) * match;
    const both = gained * recency * salience;
    const sum = recency + salience || 1;
    return {
      match,
      added: [{ key: 'recency', value: (both * recency) / sum }, { key: 'salience', value: (both * salience) / sum }],
      lost: [{ key: 'salience', value: gained * (1 - salience) }, { key: 'recency', value: gained * salience * (1 - recency) }],
    };
  }
  return { match: unit(score), added: [], lost: [] };
}

const unit = (value) => Math.min(1, Math.max(0, value));
