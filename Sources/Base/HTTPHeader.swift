/// One header field of a request.
package struct HTTPHeader: Hashable, Sendable {
  /// The field's name, without the colon.
  package var name: String
  /// Its value, without white space around it.
  package var value: String

  /// The field `name: value`.
  package init(name: String, value: String) {
    self.name = name
    self.value = value
  }
}
