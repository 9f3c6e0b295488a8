/// An option's way into a request and out of it.
struct MountOptionField: Sendable {
  /// What a user may write, for the message about anything else.
  var rule = ""
  /// Whether `@FILE` may stand for its value.
  var readsFile = false
  /// Whether each value adds to those before it.
  var isRepeatable = false
  /// Takes what a user wrote; false when it breaks the rule.
  let take: @Sendable (String, inout MountRequest) throws(MountOptionError) -> Bool
  /// Takes a value of the options file; false when it is none.
  let decode: @Sendable (String, inout MountRequest) -> Bool
  /// The request's values for the options file; nil when the server does not get the option.
  let encode: (@Sendable (MountRequest) -> [String])?

  /// A property that always has a value.
  static func value<Value>(
    _ property: any WritableKeyPath<MountRequest, Value> & Sendable, _ form: MountOptionForm<Value>
  ) -> MountOptionField {
    field(form, store: { $1[keyPath: property] = $0 }, values: { [$0[keyPath: property]] })
  }

  /// A property that is nil until the option is given.
  static func optional<Value>(
    _ property: any WritableKeyPath<MountRequest, Value?> & Sendable, _ form: MountOptionForm<Value>
  ) -> MountOptionField {
    field(form, store: { $1[keyPath: property] = $0 }, values: { $0[keyPath: property].map { [$0] } ?? [] })
  }

  /// A property that each value is added to. `@FILE` stands for the lines of a file.
  static func list<Value>(
    _ property: any WritableKeyPath<MountRequest, [Value]> & Sendable, _ form: MountOptionForm<Value>
  ) -> MountOptionField {
    var list = field(form, store: { $1[keyPath: property].append($0) }, values: { $0[keyPath: property] })
    list.readsFile = true
    list.isRepeatable = true
    return list
  }

  private static func field<Value>(
    _ form: MountOptionForm<Value>, store: @escaping @Sendable (Value, inout MountRequest) -> Void,
    values: @escaping @Sendable (MountRequest) -> [Value]
  ) -> MountOptionField {
    MountOptionField(
      rule: form.rule,
      take: { (text, request) throws(MountOptionError) in
        guard let value = try form.parse(text) else { return false }
        store(value, &request)
        return true
      },
      decode: { text, request in
        guard let value = form.decode(text) else { return false }
        store(value, &request)
        return true
      },
      encode: { values($0).map(form.encode) })
  }

  /// A flag: in the options file only when it was given.
  static func flag(_ property: any WritableKeyPath<MountRequest, Bool> & Sendable) -> MountOptionField {
    let set: @Sendable (String, inout MountRequest) -> Bool = { _, request in
      request[keyPath: property] = true
      return true
    }
    return MountOptionField(take: set, decode: set, encode: { $0[keyPath: property] ? ["1"] : [] })
  }

  /// A flag that counts: how often it was given.
  static func count(_ property: any WritableKeyPath<MountRequest, Int> & Sendable) -> MountOptionField {
    MountOptionField(
      take: { _, request in
        request[keyPath: property] += 1
        return true
      },
      decode: { text, request in
        guard let count = Int(text) else { return false }
        request[keyPath: property] = count
        return true
      },
      encode: { [String($0[keyPath: property])] })
  }

  /// For the mount helper: the server does not get it.
  static var helper: MountOptionField {
    MountOptionField(take: { _, _ in true }, decode: { _, _ in false }, encode: nil)
  }
}
