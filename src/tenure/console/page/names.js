// Check the name of a topic. Pure; the server decides, but some names would not even reach it as a path.

/** Return why a name is not valid for a topic; null where it is. */
export function nameProblem(name) {
  if (!name) return "A name has at least one character.";
  if (name.length > 255) return `A name has at most 255 characters; this one has ${name.length}.`;
  const wrong = [...name].find((char) => !/[A-Za-z0-9._:-]/.test(char));
  if (wrong !== undefined) return `A name is made of A-Z a-z 0-9 . _ : and -, and “${wrong.trim() || "a space"}” is none of them.`;
  if (!/[A-Za-z0-9]/.test(name[0])) return `A name begins with a letter or a digit, not with “${name[0]}”.`;
  return null;
}
