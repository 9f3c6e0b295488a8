/// What a check of `mediafs doctor` found.
struct Finding: Codable, Equatable {
  /// How bad it is. The raw value is printed.
  enum Grade: String, Codable {
    case ok
    /// Something works less well, or could surprise.
    case note
    /// Something does not work.
    case problem
  }

  var grade: Grade
  /// What is so, and what it means, in whole sentences.
  var text: String
  /// What the reader can do about it; nil if there is nothing to do.
  var advice: String?

  static func ok(_ text: String) -> Finding { Finding(grade: .ok, text: text) }
  static func note(_ text: String, toDo advice: String) -> Finding {
    Finding(grade: .note, text: text, advice: advice)
  }
  static func problem(_ text: String, toDo advice: String) -> Finding {
    Finding(grade: .problem, text: text, advice: advice)
  }
}

/// A check: what it is about, and what finds it out. It may hang with a disk or a mount; ``CheckRun`` bounds that.
struct Check {
  /// For the message about a check that hangs.
  var name: String
  var find: () -> [Finding]
}
