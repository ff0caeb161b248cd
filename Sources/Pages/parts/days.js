// Whole days in words: a form of times that no first view needs.
import { formatter, t } from "./words.js";
import { dayOf, forms, now } from "./times.js";

forms.day = (ms) => {
  const today = now();
  if (dayOf(ms) === dayOf(today)) return t("day.today");
  if (dayOf(ms) === dayOf(today - 86_400_000)) return t("day.yesterday");
  const year = new Date(ms).getFullYear() === new Date(today).getFullYear() ? undefined : "numeric";
  return formatter(Intl.DateTimeFormat, { weekday: "long", day: "numeric", month: "long", year }).format(ms);
};
