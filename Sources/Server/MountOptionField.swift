/// How an option's value gets into a request and out of it.
struct MountOptionField: Sendable {
  /// What a user may write; the message about any other text shows it.
  var rule = ""
  /// Whether its value may be `@FILE`.
  var readsFile = false
  /// Whether each value is added to the earlier ones.
  var isRepeatable = false
  /// Stores what a user wrote; false if it breaks the rule.
  let take: @Sendable (String, inout MountRequest) throws(MountOptionError) -> Bool
  /// Stores a value of the options file; false if it is not a valid one.
  let decode: @Sendable (String, inout MountRequest) -> Bool
  /// The request's values for the options file; nil if the server does not get the option.
  let encode: (@Sendable (MountRequest) -> [String])?

  /// A property that always has a value.
  static func value<Value>(
    _ property: any WritableKeyPath<MountRequest, Value> & Sendable, _ form: MountOptionForm<Value>
  ) -> MountOptionField {
    field(form, store: { $1[keyPath: property] = $0 }, values: { [$0[keyPath: property]] })
  }

  /// A property that is nil unless the user gives the option.
  static func optional<Value>(
    _ property: any WritableKeyPath<MountRequest, Value?> & Sendable, _ form: MountOptionForm<Value>
  ) -> MountOptionField {
    field(form, store: { $1[keyPath: property] = $0 }, values: { $0[keyPath: property].map { [$0] } ?? [] })
  }

  /// A property that collects the values. `@FILE` stands for each line of that file.
  static func list<Value>(
    _ property: any WritableKeyPath<MountRequest, [Value]> & Sendable, _ form: MountOptionForm<Value>
  ) -> MountOptionField {
    var list = several(property, form)
    list.readsFile = true
    return list
  }

  /// A property that collects the values.
  static func several<Value>(
    _ property: any WritableKeyPath<MountRequest, [Value]> & Sendable, _ form: MountOptionForm<Value>
  ) -> MountOptionField {
    var several = field(form, store: { $1[keyPath: property].append($0) }, values: { $0[keyPath: property] })
    several.isRepeatable = true
    return several
  }

  /// The lists: one at the top, and those with a folder.
  static var lists: MountOptionField {
    var lists = field(
      .list,
      store: { list, request in
        if list.folder.isEmpty { request.manifest = list.place } else { request.named.append(list) }
      }, values: { $0.allLists })
    lists.isRepeatable = true
    return lists
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

  /// A flag. The options file has it only if the user gave it.
  static func flag(_ property: any WritableKeyPath<MountRequest, Bool> & Sendable) -> MountOptionField {
    let set: @Sendable (String, inout MountRequest) -> Bool = { _, request in
      request[keyPath: property] = true
      return true
    }
    return MountOptionField(take: set, decode: set, encode: { $0[keyPath: property] ? ["1"] : [] })
  }

  /// A flag that counts how often the user gave it.
  static func count(_ property: any WritableKeyPath<MountRequest, Int> & Sendable) -> MountOptionField {
    MountOptionField(
      isRepeatable: true,
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

  /// An option for the mount helper, which the server does not get.
  static var helper: MountOptionField {
    MountOptionField(take: { _, _ in true }, decode: { _, _ in false }, encode: nil)
  }
}
