// The languages that there are, each by its own name. Another one: a line here, and a file beside this one with the words of en.js.
export default { en: "English", de: "Deutsch" };
