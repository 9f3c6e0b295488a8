// Its types differ from version to version and stay here.
#include "CXML.h"

#include <libxml/HTMLparser.h>
#include <libxml/SAX2.h>
#include <libxml/parser.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/// The most bytes of the different names of elements and attributes, which libxml2 keeps until the end.
enum { cxml_names_limit = 4 << 20 };
/// The most attributes, and declarations of namespaces, of an element. libxml2 compares each with all others, in a tag
/// that it reads as a whole; so the bytes of a tag (or a comment) that has no end yet have a bound too. The bytes are
/// handed over in small pieces, so that the bound is looked at in time.
enum { cxml_attributes_limit = 256, cxml_open_limit = 256 << 10, cxml_piece = 64 << 10 };
/// The most attributes of an element of HTML, where a page with one more is not read on: it may have many such tags.
enum { cxml_html_attributes_limit = 4 * cxml_attributes_limit };

struct cxml_parser {
  xmlParserCtxtPtr context;
  xmlSAXHandler events;
  void *user;
  cxml_begins begins;
  cxml_text text;
  cxml_ends ends;
  int depth, depth_limit, state, line, is_html;
};

void *cxml_user(const cxml_parser *self) { return self->user; }
int cxml_state(const cxml_parser *self) { return self->state; }
int cxml_depth(const cxml_parser *self) { return self->depth; }

/// The line that is being read, from 1.
int cxml_line(const cxml_parser *self) {
  if (self->line > 0) return self->line;
  return self->context->input == NULL ? 1 : self->context->input->line;
}
static void cxml_stop(cxml_parser *self, int state) {
  if (self->state != cxml_runs) return;
  self->state = state;
  self->line = cxml_line(self);
  // The HTML parser goes on to the end of its piece, and nothing of that is handed over.
  if (!self->is_html) xmlStopParser(self->context);
}
static void cxml_on_begin(
    void *user, const xmlChar *name, const xmlChar *prefix, const xmlChar *space, int spaces, const xmlChar **names,
    int count, int defaulted, const xmlChar **attributes) {
  (void)prefix, (void)names;
  cxml_parser *const self = user;
  if (self->state != cxml_runs) return;
  if (++self->depth > self->depth_limit) return cxml_stop(self, cxml_is_too_deep);
  if (count > cxml_attributes_limit || spaces > cxml_attributes_limit)
    return cxml_stop(self, cxml_has_many_attributes);
  // Those that the document type gives come last. They are left out: a few bytes could stand for many.
  self->begins(self->user, (const char *)name, (const char *)space, attributes, count - defaulted);
}
static void cxml_on_end(void *user, const xmlChar *name, const xmlChar *prefix, const xmlChar *space) {
  (void)name, (void)prefix, (void)space;
  cxml_parser *const self = user;
  if (self->state != cxml_runs) return;
  self->depth--;
  self->ends(self->user);
}
static void cxml_on_text(void *user, const xmlChar *bytes, int count) {
  cxml_parser *const self = user;
  if (self->state == cxml_runs) self->text(self->user, (const char *)bytes, count);
}
// The HTML parser gives names and values in turn, up to a NULL. They are handed over in the form of XML's attributes;
// some beyond the bound are left out, because a page is read for its links whatever else it has.
static void cxml_on_html_begin(void *user, const xmlChar *name, const xmlChar **attributes) {
  const xmlChar *fives[5 * cxml_attributes_limit];
  int count = 0;
  for (; attributes != NULL && attributes[0] != NULL && count < cxml_attributes_limit; attributes += 2, count++) {
    const xmlChar *const value = attributes[1] != NULL ? attributes[1] : (const xmlChar *)"";
    const xmlChar **const five = fives + 5 * count;
    five[0] = attributes[0], five[1] = five[2] = NULL, five[3] = value, five[4] = value + strlen((const char *)value);
  }
  int all = count;
  for (; attributes != NULL && attributes[0] != NULL && all <= cxml_html_attributes_limit; attributes += 2) all++;
  if (all > cxml_html_attributes_limit) return cxml_stop(user, cxml_has_many_attributes);
  cxml_on_begin(user, name, NULL, NULL, 0, NULL, count, 0, fives);
}
static void cxml_on_html_end(void *user, const xmlChar *name) { cxml_on_end(user, name, NULL, NULL); }
// The five entities of XML alone exist: a document that declares others is refused, so that none is ever expanded.
static xmlEntityPtr cxml_on_entity(void *user, const xmlChar *name) {
  (void)user;
  return xmlGetPredefinedEntity(name);
}
static void cxml_on_declaration(
    void *user, const xmlChar *name, int type, const xmlChar *public_id, const xmlChar *system_id, xmlChar *content) {
  (void)name, (void)type, (void)public_id, (void)system_id, (void)content;
  cxml_stop(user, cxml_has_entities);
}

/// A parser that calls these; NULL when there is no memory. HTML is read as UTF-8, whatever it says of itself, and no
/// mistake in it ends the reading.
cxml_parser *cxml_make(
    void *user, int is_html, int depth_limit, cxml_begins begins, cxml_text text, cxml_ends ends) {
  cxml_parser *const self = calloc(1, sizeof *self);
  if (self == NULL) return NULL;
  xmlInitParser();
  self->user = user;
  self->begins = begins;
  self->text = text;
  self->ends = ends;
  self->depth_limit = depth_limit;
  self->is_html = is_html;
  self->events.initialized = XML_SAX2_MAGIC;
  self->events.startElementNs = cxml_on_begin;
  self->events.endElementNs = cxml_on_end;
  self->events.characters = cxml_on_text;
  self->events.ignorableWhitespace = cxml_on_text;
  self->events.cdataBlock = cxml_on_text;
  self->events.getEntity = cxml_on_entity;
  self->events.entityDecl = cxml_on_declaration;
  if (is_html) {
    self->events.startElement = cxml_on_html_begin;
    self->events.endElement = cxml_on_html_end;
    self->context = htmlCreatePushParserCtxt(&self->events, self, NULL, 0, NULL, XML_CHAR_ENCODING_UTF8);
  } else {
    self->context = xmlCreatePushParserCtxt(&self->events, self, NULL, 0, NULL);
  }
  if (self->context == NULL) {
    free(self);
    return NULL;
  }
  // No network, no messages on the standard error output, no entity in the place of its name; and not
  // XML_PARSE_HUGE, so that libxml2's own limits hold.
  const int html_options = HTML_PARSE_NONET | HTML_PARSE_NOERROR | HTML_PARSE_NOWARNING | HTML_PARSE_IGNORE_ENC;
  if (is_html)
    htmlCtxtUseOptions(self->context, html_options);
  else
    xmlCtxtUseOptions(self->context, XML_PARSE_NONET | XML_PARSE_NOERROR | XML_PARSE_NOWARNING);
  return self;
}
void cxml_free(cxml_parser *self) {
  // The declarations of a document that was refused.
  if (self->context->myDoc != NULL) xmlFreeDoc(self->context->myDoc);
  self->context->myDoc = NULL;
  xmlFreeParserCtxt(self->context);
  free(self);
}
static int cxml_goes_on(const cxml_parser *self) {
  return self->state == cxml_runs && (self->is_html || self->context->wellFormed);
}
/// Takes the next bytes, or the end; 0 when the document cannot be read on.
int cxml_feed(cxml_parser *self, const char *bytes, int count, int is_end) {
  if (self->state != cxml_runs) return 0;
  do {
    const int next = count < cxml_piece ? count : cxml_piece;
    // The result tells of undeclared prefixes too, which harm nothing here.
#if LIBXML_VERSION < 21100
    // These versions forget that a piece ended within a quoted value, take the quote at its end for one that begins,
    // and hand over nothing more for long. From the tag's start they search it right.
    if (self->is_html) self->context->checkIndex = 0;
#endif
    if (self->is_html)
      htmlParseChunk(self->context, bytes, next, is_end && next == count);
    else
      xmlParseChunk(self->context, bytes, next, is_end && next == count);
    if (xmlDictGetUsage(self->context->dict) > cxml_names_limit) cxml_stop(self, cxml_has_many_names);
    const xmlParserInput *const input = self->context->input;
    // libxml2 hands over a section of CDATA by a few bytes for each piece, and has a bound of its own.
    const int is_tag = self->context->instate != XML_PARSER_CDATA_SECTION;
    if (is_tag && input != NULL && input->end - input->cur > cxml_open_limit) cxml_stop(self, cxml_has_long_tag);
    bytes += next;
    count -= next;
  } while (count > 0 && cxml_goes_on(self));
  return cxml_goes_on(self);
}
/// Writes why the document cannot be read, and returns the line.
int cxml_fault(const cxml_parser *self, char *text, int size) {
  const xmlError *const error = xmlCtxtGetLastError(self->context);
  if (error == NULL || error->message == NULL) return cxml_line(self);
  snprintf(text, (size_t)size, "%s", error->message);
  return error->line > 0 ? error->line : cxml_line(self);
}

/// One of the attributes: its local name, and its value, which has no NUL at its end.
cxml_attribute_value cxml_attribute(const void *attributes, int index) {
  const xmlChar *const *const five = (const xmlChar *const *)attributes + 5 * index;
  return (cxml_attribute_value){(const char *)five[0], (const char *)five[3], (int)(five[4] - five[3])};
}

int cxml_version(void) { return atoi(xmlParserVersion); }
