// libcurl, and typed wrappers of its variadic functions, which Swift cannot call.
#pragma once
#include <curl/curl.h>
#include <sys/eventfd.h>

// One wrapper for each kind of argument; what an option takes is in its man page. All copy what they are given, except
// pointers, lists and functions, which must stay valid as long as the handle may use them.
static inline CURLcode ccurl_set_long(CURL *easy, CURLoption option, long value) {
  return curl_easy_setopt(easy, option, value);
}
/// NULL resets the option to none.
static inline CURLcode ccurl_set_offset(CURL *easy, CURLoption option, curl_off_t value) {
  return curl_easy_setopt(easy, option, value);
}
static inline CURLcode ccurl_set_string(CURL *easy, CURLoption option, const char *value) {
  return curl_easy_setopt(easy, option, value);
}
static inline CURLcode ccurl_set_pointer(CURL *easy, CURLoption option, void *value) {
  return curl_easy_setopt(easy, option, value);
}
static inline CURLcode ccurl_set_list(CURL *easy, CURLoption option, struct curl_slist *value) {
  return curl_easy_setopt(easy, option, value);
}
/// CURLOPT_WRITEFUNCTION and CURLOPT_HEADERFUNCTION: both have this type.
static inline CURLcode ccurl_set_data_function(CURL *easy, CURLoption option, curl_write_callback value) {
  return curl_easy_setopt(easy, option, value);
}
static inline CURLcode ccurl_set_sockopt_function(CURL *easy, curl_sockopt_callback value) {
  return curl_easy_setopt(easy, CURLOPT_SOCKOPTFUNCTION, value);
}

static inline CURLcode ccurl_set_opensocket_function(CURL *easy, curl_opensocket_callback value) {
  return curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, value);
}

static inline CURLcode ccurl_get_long(CURL *easy, CURLINFO info, long *value) {
  return curl_easy_getinfo(easy, info, value);
}
static inline CURLcode ccurl_get_offset(CURL *easy, CURLINFO info, curl_off_t *value) {
  return curl_easy_getinfo(easy, info, value);
}
/// The string stays libcurl's.
static inline CURLcode ccurl_get_string(CURL *easy, CURLINFO info, const char **value) {
  char *found = NULL;
  CURLcode code = curl_easy_getinfo(easy, info, &found);
  *value = found;
  return code;
}
static inline CURLcode ccurl_get_pointer(CURL *easy, CURLINFO info, void **value) {
  return curl_easy_getinfo(easy, info, (char **)value);
}

static inline CURLMcode ccurl_multi_set_long(CURLM *multi, CURLMoption option, long value) {
  return curl_multi_setopt(multi, option, value);
}
static inline CURLSHcode ccurl_share(CURLSH *share, curl_lock_data what) {
  return curl_share_setopt(share, CURLSHOPT_SHARE, what);
}

/// Macros with casts, which Swift does not import.
static const long ccurl_auth_basic = (long)CURLAUTH_BASIC;
