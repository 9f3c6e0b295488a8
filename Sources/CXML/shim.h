// libxml2's parser that is fed in pieces, with the few events that lists need. Its types differ from version to version
// and stay here.
#pragma once
#include <libxml/SAX2.h>
#include <libxml/parser.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/// Why a parser stopped, beside what the document's own rules say.
enum { cxml_runs, cxml_has_entities, cxml_is_too_deep, cxml_has_many_names };
/// The most bytes of the different names of elements and attributes, which libxml2 keeps until the end.
enum { cxml_names_limit = 4 << 20 };

typedef struct cxml_parser {
  xmlParserCtxtPtr context;
  xmlSAXHandler events;
  void *user;
  /// An element begins: its local name, its namespace or NULL, and its attributes for cxml_attribute.
  void (*begins)(void *user, const char *name, const char *space, const void *attributes, int count);
  void (*text)(void *user, const char *bytes, int count);
  void (*ends)(void *user);
  int depth, depth_limit, state, line;
} cxml_parser;

/// The line that is being read, from 1.
static inline int cxml_line(const cxml_parser *self) {
  if (self->line > 0) return self->line;
  return self->context->input == NULL ? 1 : self->context->input->line;
}
static inline void cxml_stop(cxml_parser *self, int state) {
  if (self->state != cxml_runs) return;
  self->state = state;
  self->line = cxml_line(self);
  xmlStopParser(self->context);
}
static inline void cxml_on_begin(
    void *user, const xmlChar *name, const xmlChar *prefix, const xmlChar *space, int spaces, const xmlChar **names,
    int count, int defaulted, const xmlChar **attributes) {
  (void)prefix, (void)spaces, (void)names, (void)defaulted;
  cxml_parser *const self = user;
  if (self->state != cxml_runs) return;
  if (++self->depth > self->depth_limit) return cxml_stop(self, cxml_is_too_deep);
  self->begins(self->user, (const char *)name, (const char *)space, attributes, count);
}
static inline void cxml_on_end(void *user, const xmlChar *name, const xmlChar *prefix, const xmlChar *space) {
  (void)name, (void)prefix, (void)space;
  cxml_parser *const self = user;
  if (self->state != cxml_runs) return;
  self->depth--;
  self->ends(self->user);
}
static inline void cxml_on_text(void *user, const xmlChar *bytes, int count) {
  cxml_parser *const self = user;
  if (self->state == cxml_runs) self->text(self->user, (const char *)bytes, count);
}
// The five entities of XML alone exist: a document that declares others is refused, so that none is ever expanded.
static inline xmlEntityPtr cxml_on_entity(void *user, const xmlChar *name) {
  (void)user;
  return xmlGetPredefinedEntity(name);
}
static inline void cxml_on_declaration(
    void *user, const xmlChar *name, int type, const xmlChar *public_id, const xmlChar *system_id, xmlChar *content) {
  (void)name, (void)type, (void)public_id, (void)system_id, (void)content;
  cxml_stop(user, cxml_has_entities);
}

/// A parser that calls these; NULL when there is no memory.
static inline cxml_parser *cxml_make(
    void *user, int depth_limit, void (*begins)(void *, const char *, const char *, const void *, int),
    void (*text)(void *, const char *, int), void (*ends)(void *)) {
  cxml_parser *const self = calloc(1, sizeof *self);
  if (self == NULL) return NULL;
  xmlInitParser();
  self->user = user;
  self->begins = begins;
  self->text = text;
  self->ends = ends;
  self->depth_limit = depth_limit;
  self->events.initialized = XML_SAX2_MAGIC;
  self->events.startElementNs = cxml_on_begin;
  self->events.endElementNs = cxml_on_end;
  self->events.characters = cxml_on_text;
  self->events.ignorableWhitespace = cxml_on_text;
  self->events.cdataBlock = cxml_on_text;
  self->events.getEntity = cxml_on_entity;
  self->events.entityDecl = cxml_on_declaration;
  self->context = xmlCreatePushParserCtxt(&self->events, self, NULL, 0, NULL);
  if (self->context == NULL) {
    free(self);
    return NULL;
  }
  // No network, no messages on the standard error output, no entity in the place of its name; and not
  // XML_PARSE_HUGE, so that libxml2's own limits hold.
  xmlCtxtUseOptions(self->context, XML_PARSE_NONET | XML_PARSE_NOERROR | XML_PARSE_NOWARNING);
  return self;
}
static inline void cxml_free(cxml_parser *self) {
  // The declarations of a document that was refused.
  if (self->context->myDoc != NULL) xmlFreeDoc(self->context->myDoc);
  self->context->myDoc = NULL;
  xmlFreeParserCtxt(self->context);
  free(self);
}
/// Takes the next bytes, or the end; 0 when the document cannot be read on.
static inline int cxml_feed(cxml_parser *self, const char *bytes, int count, int is_end) {
  if (self->state != cxml_runs) return 0;
  // The result tells of undeclared prefixes too, which harm nothing here.
  xmlParseChunk(self->context, bytes, count, is_end);
  if (xmlDictGetUsage(self->context->dict) > cxml_names_limit) cxml_stop(self, cxml_has_many_names);
  return self->state == cxml_runs && self->context->wellFormed;
}
/// Writes why the document cannot be read, and returns the line.
static inline int cxml_fault(const cxml_parser *self, char *text, int size) {
  const xmlError *const error = xmlCtxtGetLastError(self->context);
  if (error == NULL || error->message == NULL) return cxml_line(self);
  snprintf(text, (size_t)size, "%s", error->message);
  return error->line > 0 ? error->line : cxml_line(self);
}

typedef struct cxml_attribute_value {
  const char *name;
  const char *value;
  int count;
} cxml_attribute_value;
/// One of the attributes: its local name, and its value, which has no NUL at its end.
static inline cxml_attribute_value cxml_attribute(const void *attributes, int index) {
  const xmlChar *const *const five = (const xmlChar *const *)attributes + 5 * index;
  return (cxml_attribute_value){(const char *)five[0], (const char *)five[3], (int)(five[4] - five[3])};
}
