// libxml2's parser that is fed in pieces, with the few events that lists need. Who uses it needs no header of libxml2.
#pragma once

/// Why a parser stopped, beside what the document's own rules say.
enum {
  cxml_runs,
  cxml_has_entities,
  cxml_is_too_deep,
  cxml_has_many_names,
  cxml_has_many_attributes,
  cxml_has_long_tag,
};

/// The version of the library, as a number: 20914 for 2.9.14.
int cxml_version(void);

typedef struct cxml_parser cxml_parser;
/// An element begins: its local name, its namespace or NULL, and its attributes for cxml_attribute.
typedef void (*cxml_begins)(void *user, const char *name, const char *space, const void *attributes, int count);
typedef void (*cxml_text)(void *user, const char *bytes, int count);
typedef void (*cxml_ends)(void *user);

/// A parser that calls these; NULL when there is no memory. HTML is read as UTF-8, whatever it says of itself, and no
/// mistake in it ends the reading.
cxml_parser *cxml_make(
    void *user, int is_html, int depth_limit, cxml_begins begins, cxml_text text, cxml_ends ends);
void cxml_free(cxml_parser *self);
/// What the parser was made with.
void *cxml_user(const cxml_parser *self);
/// Why it stopped: one of the constants above.
int cxml_state(const cxml_parser *self);
/// The elements that are open.
int cxml_depth(const cxml_parser *self);
/// The line that is being read, from 1.
int cxml_line(const cxml_parser *self);
/// Takes the next bytes, or the end; 0 when the document cannot be read on.
int cxml_feed(cxml_parser *self, const char *bytes, int count, int is_end);
/// Writes why the document cannot be read, and returns the line.
int cxml_fault(const cxml_parser *self, char *text, int size);

typedef struct cxml_attribute_value {
  const char *name;
  const char *value;
  int count;
} cxml_attribute_value;
/// One of the attributes: its local name, and its value, which has no NUL at its end.
cxml_attribute_value cxml_attribute(const void *attributes, int index);
