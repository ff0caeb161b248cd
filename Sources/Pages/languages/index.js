// The languages that there are, each by its own name. Another one: a line here, and files beside this one with the words of en.js, en-gateway.js, en-more.js and en-views.js.
export default { __proto__: null, en: "English", de: "Deutsch" };
