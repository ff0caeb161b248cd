// swift-tools-version: 6.2
import PackageDescription

// The protocols of MeshCore, for any Swift program that uses a radio: no input or output, no clock, no Foundation.

// The same settings as in the main Package.swift, for the same reasons.
#if compiler(>=6.3)
  let boundedTypeChecks: [SwiftSetting] = [.unsafeFlags(["-Xfrontend", "-solver-scope-threshold=50000"])]
#else
  let boundedTypeChecks: [SwiftSetting] = []
#endif
let strict: [SwiftSetting] =
  [
    .treatAllWarnings(as: .error), .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
    .unsafeFlags(["-Xfrontend", "-disable-implicit-string-processing-module-import"]),
  ] + boundedTypeChecks

// As in the main Package.swift.
let optimized: [SwiftSetting] = [.unsafeFlags(["-O", "-assert-config", "Debug"], .when(configuration: .debug))]

func module(_ name: String, _ needs: [Target.Dependency], in folder: String = "") -> Target {
  .target(name: name, dependencies: needs, path: folder + name, swiftSettings: strict + optimized)
}

func tests(_ name: String, _ needs: [Target.Dependency]) -> Target {
  .testTarget(name: name, dependencies: needs, swiftSettings: strict)
}

extension Target.Dependency {
  static func loop(_ module: String) -> Target.Dependency { .product(name: module, package: "Loop") }

  static let timing = loop("Timing")
}

let modules: [Target] = [
  module("Companion", [.timing]),
  module("RadioSession", ["Companion", .timing]),
  module("BluetoothSession", [.timing]),
  module("Delivery", ["Companion", .timing]),
  module("MeshCrypto", ["Companion", .loop("COpenSSL")]),
  module("MeshIdentity", ["Companion", "MeshCrypto", .loop("CSodium")]),
]

let package = Package(
  name: "MeshCore",
  products: [
    .library(name: "MeshCore", targets: modules.map(\.name)),
    .library(name: "MeshCoreFixtures", targets: ["MeshCoreFixtures"]),
  ] + modules.map { .library(name: $0.name, targets: [$0.name]) },
  dependencies: [.package(path: "../Loop")],
  targets: modules + [
    module("MeshCoreFixtures", ["Companion"], in: "Tests/"),
    tests("CompanionTests", ["Companion", "MeshCoreFixtures", "MeshCrypto", .timing]),
    tests("RadioSessionTests", ["Companion", "MeshCoreFixtures", "MeshCrypto", "RadioSession", .timing]),
    tests("BluetoothSessionTests", ["BluetoothSession", .timing]),
    tests("DeliveryTests", ["Companion", "Delivery", .timing]),
    tests("MeshCryptoTests", ["Companion", "MeshCoreFixtures", "MeshCrypto", "MeshIdentity"]),
  ],
  swiftLanguageModes: [.v6]
)
