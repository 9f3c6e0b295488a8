/// One header field of a request.
public struct HTTPHeader: Hashable, Sendable {
  /// The field's name, without the colon.
  public var name: String
  /// Its value, without white space around it.
  public var value: String

  /// The field `name: value`.
  public init(name: String, value: String) {
    self.name = name
    self.value = value
  }
}
