// ncursesw, and functions for what Swift cannot reach of it: macros, the global `stdscr`, key codes.
#pragma once
#define NCURSES_WIDECHAR 1
#include <curses.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

/// Gives the calling thread the characters of a locale, and nothing else of it: dates and numbers stay those of C.
/// 1: it has UTF-8; 0: it has not; -1: there is no such locale, and the thread keeps its own.
static inline int ccurses_use_characters(const char *name) {
  const locale_t locale = newlocale(LC_CTYPE_MASK, name, (locale_t)0);
  if (locale == (locale_t)0) return -1;
  uselocale(locale);
  return strcmp(nl_langinfo_l(CODESET, locale), "UTF-8") == 0;
}
/// How many columns a character takes in the thread's locale: 0 to 2; -1 when it cannot be printed.
static inline int ccurses_width(uint32_t character) { return wcwidth((wchar_t)character); }

/// Takes the terminal at the standard output and input over; 0 when it cannot. The signals that ncurses would handle do
/// by default again what they did.
static inline int ccurses_begin(void) {
  if (newterm(NULL, stdout, stdin) == NULL) return 0;
  static const int handled[] = {SIGINT, SIGTERM, SIGTSTP, SIGWINCH};
  for (size_t i = 0; i < sizeof handled / sizeof *handled; i++) signal(handled[i], SIG_DFL);
  cbreak();
  noecho();
  nonl();
  keypad(stdscr, TRUE);
  nodelay(stdscr, TRUE);
  set_escdelay(25);
  curs_set(0);
  return 1;
}
/// Colors 1 to 6 (red to cyan) on the terminal's own background, as pairs of the same number; 0 when it has none.
static inline int ccurses_begin_colors(void) {
  if (!has_colors() || start_color() != OK) return 0;
  const int back = use_default_colors() == OK ? -1 : COLOR_BLACK;
  for (short color = 1; color <= 6; color++) init_pair(color, color, (short)back);
  return 1;
}
static inline void ccurses_end(void) { endwin(); }
/// After the terminal was another program's: it gets its modes, and all is drawn anew.
static inline void ccurses_resume(void) {
  reset_prog_mode();
  clearok(curscr, TRUE);
}
static inline void ccurses_resize(int rows, int columns) { resizeterm(rows, columns); }
static inline int ccurses_rows(void) { return LINES; }
static inline int ccurses_columns(void) { return COLS; }

enum { ccurses_bold = 1, ccurses_dim = 2, ccurses_reverse = 4 };
static inline void ccurses_erase(void) { werase(stdscr); }
/// Writes characters at a place, with attributes and the pair of a color.
static inline void ccurses_put(int row, int column, const wchar_t *text, int count, unsigned style, short pair) {
  attr_t attributes = A_NORMAL;
  if (style & ccurses_bold) attributes |= A_BOLD;
  if (style & ccurses_dim) attributes |= A_DIM;
  if (style & ccurses_reverse) attributes |= A_REVERSE;
  wattr_set(stdscr, attributes, pair, NULL);
  mvwaddnwstr(stdscr, row, column, text, count);
}
/// Sends what has changed on the screen, all at once.
static inline void ccurses_show(void) {
  wnoutrefresh(stdscr);
  doupdate();
}

enum {
  ccurses_no_key, ccurses_character, ccurses_up, ccurses_down, ccurses_page_up, ccurses_page_down, ccurses_home,
  ccurses_end_key, ccurses_enter, ccurses_backspace, ccurses_other
};
/// The next key that was typed, without waiting; of a character also which.
static inline int ccurses_key(uint32_t *character) {
  wint_t typed = 0;
  const int kind = wget_wch(stdscr, &typed);
  if (kind == ERR) return ccurses_no_key;
  if (kind == KEY_CODE_YES) {
    switch (typed) {
      case KEY_UP: return ccurses_up;
      case KEY_DOWN: return ccurses_down;
      case KEY_PPAGE: return ccurses_page_up;
      case KEY_NPAGE: return ccurses_page_down;
      case KEY_HOME: return ccurses_home;
      case KEY_END: return ccurses_end_key;
      case KEY_ENTER: return ccurses_enter;
      case KEY_BACKSPACE: return ccurses_backspace;
      default: return ccurses_other;
    }
  }
  switch (typed) {
    case '\r': case '\n': return ccurses_enter;
    case 8: case 127: return ccurses_backspace;
    default: *character = (uint32_t)typed; return ccurses_character;
  }
}

/// A string of the terminal's description; NULL when it has none of that name.
static inline const char *ccurses_string(const char *name) {
  const char *const found = tigetstr(name);
  return found == (const char *)-1 ? NULL : found;
}
