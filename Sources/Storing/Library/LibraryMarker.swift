import Base
import Glibc

/// The hidden file `.mediafs-library`, which identifies a library (docs/STORE-FORMAT.md, "Folder").
///
/// A disk that is not mounted leaves an empty folder. Without the marker, mediafs would think that a user removed all
/// copies, and would download them again under the bare mountpoint.
struct LibraryMarker: Equatable {
  static let name = ".mediafs-library"
  private static let version = 1

  /// Distinguishes it from other libraries; nil if a later version wrote another format.
  var id: Int64?

  /// The marker of a new library.
  static func random() -> LibraryMarker { LibraryMarker(id: Int64.random(in: 1...Int64.max)) }

  /// The marker in `folder`; nil if there is none, or another kind of file has its name.
  static func read(in folder: borrowing Folder) throws(Errno) -> LibraryMarker? {
    // Checks by name first: the open of a device may have side effects.
    guard let status = try folder.status(of: name), status.isPlainFile else { return nil }
    let text = try smallText(of: folder.file(name, O_RDONLY), limit: 4 << 10)
    switch KeyValueText.decode(text, kind: "library", version: version) {
    case .damaged: return nil
    case .unknownVersion: return LibraryMarker(id: nil)
    case .fields(let fields):
      guard let id = fields["id"].flatMap({ Int64($0) }), id > 0 else { return nil }
      return LibraryMarker(id: id)
    }
  }

  /// Writes it, durably. Replaces only an empty file, which a power loss may leave of a marker.
  func write(in folder: borrowing Folder, mode: mode_t) throws(Errno) {
    let file = try folder.file(Self.name, O_WRONLY | O_CREAT, mode: mode)
    let status = try file.status()
    guard status.isPlainFile, status.st_size == 0 else { throw .exists }
    var text = KeyValueText.encode(kind: "library", version: Self.version, fields: [("id", "\(id ?? 0)")])
    let failure: Errno? = text.withUTF8 { bytes in
      do throws(Errno) {
        try file.writeFully(UnsafeRawBufferPointer(bytes), at: 0)
        return nil
      } catch {
        return error
      }
    }
    if let failure { throw failure }
    try file.sync()
    try folder.sync()
  }
}
