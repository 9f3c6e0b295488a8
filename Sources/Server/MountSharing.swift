import Base
import Glibc
import Sharing
import Storing

/// What a mount shares through, as its options say, with the secrets that no option has.
struct MountSharing {
  private var setup: FleetMember.Setup

  /// Reads the keys: before the server is restricted to the files that it needs.
  init(_ share: MountRequest.Share, _ place: String) throws(ServerError) {
    do throws(StoreSetupError) {
      let store = try StoreSetup(
        share: place, endpoint: share.endpoint, region: share.region, environment: Self.environment)
      setup = FleetMember.Setup(store: store, key: try FleetKey.find(file: share.keyFile, Self.environment), node: 0)
    } catch {
      throw .failed("cannot share through \(place): \(error.description)")
    }
    setup.isReadOnly = share.mode == .ro
    setup.uploadRate = share.uploadLimit
  }

  /// What the mount is as a member of the fleet. The store's catalog keeps its number.
  func member(_ catalog: Catalog, fresh: Double) throws(StoreError) -> FleetMember.Setup {
    var setup = setup
    let known = try catalog.remembered("fleet_node")
    let number = known ?? Int64.random(in: 1...Int64.max)
    if known == nil { try catalog.remember("fleet_node", number) }
    (setup.node, setup.fresh) = (UInt64(bitPattern: number), fresh)
    return setup
  }

  /// The files with keys that a renewal reads again.
  static var keyFiles: [String] { StoreAccount.files(environment) }

  private static var environment: [String: String] {
    var found: [String: String] = [:]
    for name in StoreAccount.variables + [FleetKey.variable] { found[name] = getenv(name).map { String(cString: $0) } }
    return found
  }
}
