// SPDX-License-Identifier: MIT

import EventLoop
import Glibc
import OwnFiles
import UntrustedText

/// The files of a gateway that runs on this machine. What a command writes must not take their place: the gateway would lose what it has there.
enum GatewayFiles {
  /// Refuses a file of a gateway's, also one that is missing at this moment.
  static func check(_ file: String) throws {
    let folder = Folder.resolved(Folder.of(file))
    // A link's own name counts as little as its folder: what is behind it would be lost.
    let place = access(file, F_OK) == 0 ? Folder.resolved(file) : "\(folder)/\(file.pieces(at: "/").last ?? "")"
    guard databases(beside: place).contains(where: isTaken) || configured(by: place).contains(where: isTaken) else {
      return
    }
    throw Failure.say("\(file) is a file that the running gateway uses: name another one", EX_CANTCREAT)
  }

  /// The databases that the file would belong to, by its name. Files of added upstreams are in a folder, and their secrets in folders in that.
  private static func databases(beside place: String) -> [String] {
    let folders = [Folder.of(place), Folder.of(Folder.of(place))].compactMap {
      base(of: $0, OwnSuffix.upstreams.rawValue)
    }
    return OwnSuffix.allCases.compactMap { base(of: place, $0.rawValue) } + folders
  }

  private static func base(of place: String, _ suffix: String) -> String? {
    guard place.utf8.count > suffix.utf8.count, place.utf8.suffix(suffix.utf8.count).elementsEqual(suffix.utf8) else {
      return nil
    }
    return String(decoding: place.utf8.dropLast(suffix.utf8.count), as: UTF8.self)
  }

  /// The database of the file, if it is a configuration.
  private static func configured(by place: String) -> [String] {
    guard base(of: place, ".toml") != nil else { return [] }
    let text = Files.read(place, most: 1 << 20).map { String(decoding: $0, as: UTF8.self) }
    let location = text.flatMap { ConfigurationText(ifReadable: $0, location: place) }?.string("store", "location")
    if let location { return [location, Folder.resolved(location)] }
    return place.isExactly(Folder.resolved(Setup.serviceFile)) ? [Setup.serviceStore] : []
  }

  /// Whether a gateway has the database. It lets go of the lock at once: a start that needs it meanwhile tries again.
  private static func isTaken(_ database: String) -> Bool {
    let descriptor = open(OwnSuffix.lock.of(database), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
    guard descriptor >= 0 else { return false }
    defer { close(descriptor) }
    return flock(descriptor, LOCK_SH | LOCK_NB) != 0
  }
}
