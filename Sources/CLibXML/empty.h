// Nothing: libxml2's headers stay in the C of CXML. They include those of ICU, of which Swift's Foundation has others.
#pragma once
